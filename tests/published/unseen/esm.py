"""ESM-2 for masked language modelling as transformers of 2024 runs it: 150 million by default.

Attention is written out, positions are rotary, GELU is written out with the error function, and
the head's matrix is tied to the embedding. 148,140,154 parameters; the published 148,796,794 count
learned positions, 1,026 x 640, that no layer reads.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 30, hidden: int = 640, heads: int = 20, vocab: int = 33, seq_len: int = 512
) -> nn.Module:
    return ESM(layers, hidden, heads, vocab, seq_len)


def make_batch(batch_size: int, vocab: int = 33, seq_len: int = 512) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    return tokens, torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=5e-5, weight_decay=0.0)


def TOKENS_PER_SAMPLE(seq_len: int = 512) -> int:
    return seq_len


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.value, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        inner = self.norm1(x)
        query, key, value = (
            layer(inner).unflatten(2, (self.heads, -1)).permute(0, 2, 1, 3)
            for layer in (self.query, self.key, self.value)
        )
        query = query * query.shape[-1] ** -0.5
        query = query * cos + turned(query) * sin
        key = key * cos + turned(key) * sin
        shares = F.softmax(torch.matmul(query, key.transpose(-1, -2)) + mask, dim=-1)
        mixed = torch.matmul(shares, value).permute(0, 2, 1, 3).contiguous().flatten(2)
        x = self.out(mixed) + x
        return self.down(gelu(self.up(self.norm2(x)))) + x


class ESM(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, vocab: int, seq_len: int):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.contacts = nn.Linear(layers * heads, 1)
        self.contacts.requires_grad_(False)
        self.dense = nn.Linear(hidden, hidden)
        self.head_norm = nn.LayerNorm(hidden)
        self.head_bias = nn.Parameter(torch.zeros(vocab))
        width = hidden // heads
        rates = 10_000 ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(seq_len).float(), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        mask = torch.zeros(len(x), 1, 1, x.shape[1], dtype=x.dtype, device=x.device)
        for block in self.blocks:
            x = block(x, mask, self.cos, self.sin)
        x = self.head_norm(gelu(self.dense(self.norm(x))))
        return F.linear(x, self.words.weight) + self.head_bias
