"""GPT-NeoX (Pythia) as transformers of 2023 runs it, attention written out: pythia-1b by default.

Program: models/gpt_neox/modeling_gpt_neox.py: parallel branches, a quarter of each head is turned,
biases, no dropout, scores in fp32 where parameters are.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 16, hidden: int = 2048, heads: int = 8, vocab: int = 50304, seq_len: int = 512
) -> nn.Module:
    return NeoX(layers, hidden, heads, vocab, seq_len)


def make_batch(batch_size: int, vocab: int = 50304, seq_len: int = 512) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    return tokens, torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    shifted = model(batch[0])[:, :-1].contiguous()
    return F.cross_entropy(shifted.flatten(0, 1), batch[1][:, 1:].reshape(-1))


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-5)


def TOKENS_PER_SAMPLE(seq_len: int = 512) -> int:
    return seq_len


def turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads, self.turned = heads, hidden // heads // 4
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            self.qkv(self.norm1(x)).unflatten(2, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        )
        query, key = (
            torch.cat(
                (
                    one[..., : self.turned] * cos + turned(one[..., : self.turned]) * sin,
                    one[..., self.turned :],
                ),
                -1,
            )
            for one in (query, key)
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        scores = torch.where(mask, scores, torch.full_like(scores[:1, :1, :1, :1], -1e4))
        mixed = F.softmax(scores, dim=-1).to(value.dtype) @ value
        mixed = self.out(mixed.transpose(1, 2).contiguous().flatten(2))
        return self.down(F.gelu(self.up(self.norm2(x)))) + mixed + x


class NeoX(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(self, layers: int, hidden: int, heads: int, vocab: int, seq_len: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        width = hidden // heads // 4
        rates = 10_000 ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(seq_len).float(), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        length = tokens.shape[1]
        cos, sin = self.cos[:length].to(x.dtype), self.sin[:length].to(x.dtype)
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return self.head(self.norm(x))
