"""LoRA fine-tuning of a frozen decoder; 9,437,184 trainable parameters on Llama-3-8B by default.

Source: Hu et al. 2021 (arXiv:2106.09685): low-rank adapters beside the attention projections. The
decoder itself is `decoder.py` in this folder.
"""

import torch
from decoder import TOKENS_PER_SAMPLE as TOKENS_PER_SAMPLE
from decoder import GroupedAttention
from decoder import build_model as build_decoder
from decoder import compute_loss as compute_loss
from decoder import make_batch as make_batch
from torch import Tensor, nn


def build_model(
    rank: int = 16,
    alpha: float = 32.0,
    layers: int = 32,
    hidden: int = 4096,
    heads: int = 32,
    kv_heads: int = 8,
    ffn: int = 14336,
    vocab: int = 128256,
    seq_len: int = 8192,
) -> nn.Module:
    model = build_decoder(layers, hidden, heads, kv_heads, ffn, vocab=vocab, seq_len=seq_len)
    model.requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, GroupedAttention):
            for name in ("qkv", "out"):
                setattr(module, name, LowRankAdapter(getattr(module, name), rank, alpha))
    return model


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=2e-4)


class LowRankAdapter(nn.Module):
    """A frozen linear layer plus `alpha / rank` times a trainable product of two thin matrices."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        self.scale = alpha / rank
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x)) * self.scale
