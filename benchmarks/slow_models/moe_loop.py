"""A mixture of experts whose layer loops over its experts, as many published files do.

The shape is that of Qwen3-30B-A3B (128 experts of 768, 8 active; config.json of the release) with
24 of its 48 layers; the loop is that of its first implementation in transformers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.query = nn.Linear(hidden, heads * dim, bias=False)
        self.key = nn.Linear(hidden, kv_heads * dim, bias=False)
        self.value = nn.Linear(hidden, kv_heads * dim, bias=False)
        self.output = nn.Linear(heads * dim, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (-1, self.dim)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.output(out.transpose(1, 2).flatten(2))


class Expert(nn.Module):
    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    def __init__(self, hidden: int, ffn: int, experts: int, active: int) -> None:
        super().__init__()
        self.active = active
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(Expert(hidden, ffn) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights = self.router(tokens).softmax(-1, dtype=torch.float)
        weights, chosen = torch.topk(weights, self.active, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(tokens)
        mask = F.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        for index, expert in enumerate(self.experts):
            nth, rows = torch.where(mask[index])
            done = expert(tokens[rows]) * weights[rows, nth, None]
            out.index_add_(0, rows, done.to(out.dtype))
        return out.view_as(x)


class Block(nn.Module):
    def __init__(
        self, hidden: int, heads: int, kv_heads: int, dim: int, ffn: int, experts: int, active: int
    ) -> None:
        super().__init__()
        self.norm1, self.attention = nn.RMSNorm(hidden), Attention(hidden, heads, kv_heads, dim)
        self.norm2, self.experts = nn.RMSNorm(hidden), Experts(hidden, ffn, experts, active)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.experts(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, vocab: int, hidden: int, layers: int, **block: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, **block) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build_model(
    vocab: int = 151936,
    hidden: int = 2048,
    layers: int = 24,
    heads: int = 32,
    kv_heads: int = 4,
    dim: int = 128,
    ffn: int = 768,
    experts: int = 128,
    active: int = 8,
) -> nn.Module:
    return Decoder(
        vocab, hidden, layers, heads=heads, kv_heads=kv_heads, dim=dim, ffn=ffn,
        experts=experts, active=active,
    )  # fmt: skip


def make_batch(
    batch_size: int = 4, seq_len: int = 2048, vocab: int = 151936
) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len + 1))
    return tokens[:, :-1], tokens[:, 1:]


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def TOKENS_PER_SAMPLE(seq_len: int = 2048) -> int:
    return seq_len
