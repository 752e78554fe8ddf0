"""GPT-2-small as rasbt/LLMs-from-scratch writes it: an untied head, no biases at queries and keys.

Its page of training speed (ch05/10_llm-training-speed) replaces parts step by step. `norms="own"`
and `attention="eager"` are the parts written out, `norms="torch"` and `attention="fused"` torch's.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocab: int = 50257,
    seq_len: int = 1024,
    norms: str = "torch",
    attention: str = "fused",
    dropout: float = 0.1,
    stored_mask: bool = False,
) -> nn.Module:
    return GPT(layers, hidden, heads, vocab, seq_len, norms, attention, dropout, stored_mask)


def make_batch(batch_size: int, vocab: int = 50257, seq_len: int = 1024) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    return tokens, torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    logits = model(batch[0])
    return F.cross_entropy(logits.flatten(0, 1), batch[1].flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=5e-4, weight_decay=0.1)


def TOKENS_PER_SAMPLE(seq_len: int = 1024) -> int:
    return seq_len


class Norm(nn.Module):
    """A layer norm, operation by operation."""

    def __init__(self, hidden: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(hidden))
        self.shift = nn.Parameter(torch.zeros(hidden))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, keepdim=True, unbiased=False)
        return self.scale * ((x - mean) / torch.sqrt(variance + 1e-5)) + self.shift


class Gelu(nn.Module):
    """The tanh form of GELU, operation by operation."""

    def forward(self, x: Tensor) -> Tensor:
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3))
        return 0.5 * x * (1 + torch.tanh(inner))


class EagerAttention(nn.Module):
    mask: Tensor

    def __init__(self, hidden: int, heads: int, seq_len: int, dropout: float, stored_mask: bool):
        super().__init__()
        self.heads, self.stored_mask = heads, stored_mask
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.value = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)
        if stored_mask:
            self.register_buffer("mask", torch.triu(torch.ones(seq_len, seq_len), diagonal=1))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(2, 3)
        length = x.shape[1]
        if self.stored_mask:
            hidden = self.mask.bool()[:length, :length]
        else:
            hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores.masked_fill_(hidden, -torch.inf)
        shares = self.dropout(torch.softmax(scores / key.shape[-1] ** 0.5, dim=-1))
        return self.out((shares @ value).transpose(1, 2).flatten(2))


class FusedAttention(nn.Module):
    def __init__(self, hidden: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        )
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.out(mixed.transpose(1, 2).contiguous().flatten(2))


class Block(nn.Module):
    def __init__(self, hidden: int, attention: nn.Module, own: bool, dropout: float):
        super().__init__()
        self.attention = attention
        self.norm1 = Norm(hidden) if own else nn.LayerNorm(hidden)
        self.norm2 = Norm(hidden) if own else nn.LayerNorm(hidden)
        gelu = Gelu() if own else nn.GELU(approximate="tanh")
        self.ffn = nn.Sequential(nn.Linear(hidden, 4 * hidden), gelu, nn.Linear(4 * hidden, hidden))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.attention(self.norm1(x))) + x
        return self.dropout(self.ffn(self.norm2(x))) + x


class GPT(nn.Module):
    def __init__(
        self,
        layers: int,
        hidden: int,
        heads: int,
        vocab: int,
        seq_len: int,
        norms: str,
        attention: str,
        dropout: float,
        stored_mask: bool,
    ):
        super().__init__()
        own = norms == "own"

        def core() -> nn.Module:
            if attention == "eager":
                return EagerAttention(hidden, heads, seq_len, dropout, stored_mask)
            return FusedAttention(hidden, heads, dropout)

        self.words = nn.Embedding(vocab, hidden)
        self.places = nn.Embedding(seq_len, hidden)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(hidden, core(), own, dropout) for _ in range(layers))
        self.norm = Norm(hidden) if own else nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.dropout(self.words(tokens) + places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
