"""A small decoder whose projections are layers of their own, as torch's tensor-parallel plans ask.

A model file like a user's: the same one is profiled by gpuplan and split by torch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 3,
    hidden: int = 512,
    heads: int = 8,
    kv_heads: int = 8,
    ffn: int = 1536,
    gated: bool = False,
    bias: bool = False,
    vocab: int = 4096,
) -> nn.Module:
    blocks = [Block(hidden, heads, kv_heads, ffn, gated, bias) for _ in range(layers)]
    return Decoder(blocks, hidden, vocab, bias)


def make_batch(batch_size: int = 2, vocab: int = 4096, seq_len: int = 512) -> tuple[Tensor, Tensor]:
    return (
        torch.randint(vocab, (batch_size, seq_len)),
        torch.randint(vocab, (batch_size, seq_len)),
    )


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    logits = model(tokens).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)


class Decoder(nn.Module):
    def __init__(self, blocks: list["Block"], hidden: int, vocab: int, bias: bool):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(hidden, bias=bias)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int, gated: bool, bias: bool):
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden, bias=bias)
        self.attention = Attention(hidden, heads, kv_heads, bias)
        self.ffn_norm = nn.LayerNorm(hidden, bias=bias)
        self.ffn = FeedForward(hidden, ffn, gated, bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class Attention(nn.Module):
    """Heads are read from what the projections give, so that a rank has its own."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, bias: bool):
        super().__init__()
        self.head_dim = hidden // heads
        self.query = nn.Linear(hidden, heads * self.head_dim, bias=bias)
        self.key = nn.Linear(hidden, kv_heads * self.head_dim, bias=bias)
        self.value = nn.Linear(hidden, kv_heads * self.head_dim, bias=bias)
        self.out = nn.Linear(heads * self.head_dim, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        core = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=query.shape[1] != key.shape[1]
        )
        return self.out(core.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, hidden: int, ffn: int, gated: bool, bias: bool):
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False) if gated else None
        self.up = nn.Linear(hidden, ffn, bias=bias)
        self.down = nn.Linear(ffn, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(F.gelu(self.up(x)))
        return self.down(F.silu(self.gate(x)) * self.up(x))
