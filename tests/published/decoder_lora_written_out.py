"""decoder_lora.py with the norms of transformers: RMSNorm operation by operation, in fp32.

NeMo-Automodel's own Llama took them from there to 2026-01 (components/models/llama/model.py:
`LlamaRMSNorm` of transformers/models/llama/modeling_llama.py).
"""

import decoder_lora
import torch
from torch import Tensor, nn

make_batch = decoder_lora.make_batch
compute_loss = decoder_lora.compute_loss
build_optimizer = decoder_lora.build_optimizer
TOKENS_PER_SAMPLE = decoder_lora.TOKENS_PER_SAMPLE


class WrittenOutNorm(nn.Module):
    """RMSNorm that widens its input, squares it, takes the mean, scales and narrows again."""

    def __init__(self, inner: nn.RMSNorm) -> None:
        super().__init__()
        self.weight = inner.weight
        self.eps = inner.eps or 1e-5

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        mean = wide.pow(2).mean(-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(mean + self.eps)).to(x.dtype)


def build_model(
    layers: int = 80,
    hidden: int = 8192,
    heads: int = 64,
    kv_heads: int = 8,
    ffn: int = 28672,
    ffn_kind: str = "swiglu",
    vocab: int = 128256,
    seq_len: int = 4096,
    tied_embeddings: bool = False,
    lora_rank: int = 16,
    lora_targets: str = "all",
) -> nn.Module:
    model = decoder_lora.build_model(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        ffn_kind=ffn_kind,
        vocab=vocab,
        seq_len=seq_len,
        tied_embeddings=tied_embeddings,
        lora_rank=lora_rank,
        lora_targets=lora_targets,
    )
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.RMSNorm):
                setattr(module, name, WrittenOutNorm(child))
    return model
