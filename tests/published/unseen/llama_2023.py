"""Llama as transformers ran it in 2023, attention written out: `llama_adapters.py` before SDPA.

Program: models/llama/modeling_llama.py up to 4.35: scores, a mask that is added, softmax in fp32,
logits turned into fp32. Adapters as there: `targets` names the layers that have them, "" trains
all. Defaults are Llama-2-7B (and LLaMA-7B).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 32,
    hidden: int = 4096,
    heads: int = 32,
    kv_heads: int = 32,
    ffn: int = 11008,
    vocab: int = 32000,
    seq_len: int = 2048,
    targets: str = "",
    rank: int = 8,
    dropout: float = 0.0,
) -> nn.Module:
    model = Llama(layers, hidden, heads, kv_heads, ffn, vocab, seq_len)
    if targets:
        model.requires_grad_(False)
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if name in targets.split(",") and isinstance(child, nn.Linear):
                    setattr(module, name, Adapter(child, rank, dropout))
    return model


def make_batch(batch_size: int, vocab: int = 32000, seq_len: int = 2048) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    return tokens, torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    shifted = model(batch[0])[:, :-1].contiguous()
    return F.cross_entropy(shifted.flatten(0, 1), batch[1][:, 1:].reshape(-1))


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for one in parameters if one.requires_grad], lr=1e-4)


def TOKENS_PER_SAMPLE(seq_len: int = 2048) -> int:
    return seq_len


class Adapter(nn.Module):
    def __init__(self, base: nn.Linear, rank: int, dropout: float):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(self.dropout(x))) * 2.0


class Norm(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        dtype, x = x.dtype, x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * x.to(dtype)


def turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int):
        super().__init__()
        self.width, self.repeats = hidden // heads, heads // kv_heads
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, kv_heads * self.width, bias=False)
        self.value = nn.Linear(hidden, kv_heads * self.width, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(2, (-1, self.width)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query = query * cos + turned(query) * sin
        key = key * cos + turned(key) * sin
        if self.repeats > 1:
            key = key.repeat_interleave(self.repeats, dim=1)
            value = value.repeat_interleave(self.repeats, dim=1)
        scores = query @ key.transpose(2, 3) / math.sqrt(self.width)
        scores = scores + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        return self.out((weights @ value).transpose(1, 2).contiguous().flatten(2))


class FeedForward(nn.Module):
    def __init__(self, hidden: int, ffn: int):
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int):
        super().__init__()
        self.attention_norm, self.ffn_norm = Norm(hidden), Norm(hidden)
        self.attention = Attention(hidden, heads, kv_heads)
        self.ffn = FeedForward(hidden, ffn)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin, mask)
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(self, layers, hidden, heads, kv_heads, ffn, vocab, seq_len):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = Norm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        width = hidden // heads
        rates = 10_000 ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(seq_len).float(), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        length = tokens.shape[1]
        mask = torch.full((length, length), -1e4, device=x.device, dtype=x.dtype).triu(1)
        mask = mask[None, None].expand(tokens.shape[0], 1, length, length).contiguous()
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return self.head(self.norm(x)).float()
