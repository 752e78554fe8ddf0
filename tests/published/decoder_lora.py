"""examples/decoder.py with every weight frozen but LoRA adapters (arXiv:2106.09685)."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from gpuplan.examples import decoder

make_batch = decoder.make_batch
compute_loss = decoder.compute_loss


class LoRALinear(nn.Module):
    """A linear layer with a trained product of two thin matrices beside it."""

    def __init__(self, inner: nn.Linear, rank: int) -> None:
        super().__init__()
        self.inner = inner
        self.down = nn.Linear(inner.in_features, rank, bias=False)
        self.up = nn.Linear(rank, inner.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.up(self.down(x))


def build_model(
    layers: int = 80,
    hidden: int = 8192,
    heads: int = 64,
    kv_heads: int = 8,
    ffn: int = 28672,
    ffn_kind: str = "swiglu",
    vocab: int = 32000,
    seq_len: int = 8192,
    tied_embeddings: bool = False,
    attention: str = "fused",
    lora_rank: int = 16,
    lora_targets: str = "attention",
    head_dim: int | None = None,
) -> nn.Module:
    """`lora_targets`: "attention" adapts its four matrices, "all" the feed-forward's too."""
    model = decoder.build_model(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        ffn_kind=ffn_kind,
        vocab=vocab,
        seq_len=seq_len,
        tied_embeddings=tied_embeddings,
        attention=attention,
        head_dim=head_dim,
    )
    adapted: tuple[type[nn.Module], ...] = (decoder.GroupedAttention,)
    if lora_targets == "all":
        adapted += (decoder.FeedForward,)
    model.requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, adapted):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(module, name, LoRALinear(child, lora_rank))
    return model


def build_optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    trained = [one for one in parameters if one.requires_grad]
    return torch.optim.AdamW(trained, lr=3e-4)


def TOKENS_PER_SAMPLE(seq_len: int = 8192) -> int:
    return seq_len
