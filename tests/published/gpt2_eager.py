"""GPT-2 as transformers of 2024 runs it without fused kernels: GPT-2 large by default.

NeuSight measured that (neusight/Tracing/trace.py: `AutoModelForCausalLM` in training mode,
`attn_implementation="eager"`, dropouts of 0.1 in its configurations). Beside `examples/decoder.py`
it has dropout of attention weights, of both branches and of the embedding, scores divided before
they are masked, and the approximation of GELU that GPT-2 was trained with, operation by operation.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 36,
    hidden: int = 1280,
    heads: int = 20,
    ffn: int = 5120,
    vocab: int = 50257,
    seq_len: int = 1024,
    dropout: float = 0.1,
) -> nn.Module:
    blocks = [Block(hidden, heads, ffn, seq_len, dropout) for _ in range(layers)]
    return GPT2(blocks, hidden, vocab, seq_len, dropout)


def make_batch(batch_size: int, vocab: int = 50257, seq_len: int = 1024) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    return tokens, torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def TOKENS_PER_SAMPLE(seq_len: int = 1024) -> int:
    return seq_len


class GPT2(nn.Module):
    def __init__(
        self, blocks: list["Block"], hidden: int, vocab: int, seq_len: int, dropout: float
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(seq_len, hidden)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.words(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, ffn: int, seq_len: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads, seq_len, dropout)
        self.ffn_norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, ffn)
        self.down = nn.Linear(ffn, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.dropout(self.down(gelu_new(self.up(self.ffn_norm(x)))))


class Attention(nn.Module):
    seen: Tensor

    def __init__(self, hidden: int, heads: int, seq_len: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.weight_dropout = nn.Dropout(dropout)
        self.dropout = nn.Dropout(dropout)
        seen = torch.ones(seq_len, seq_len, dtype=torch.bool).tril()
        self.register_buffer("seen", seen, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        length = x.shape[1]
        lowest = torch.full((), torch.finfo(scores.dtype).min, dtype=scores.dtype, device=x.device)
        scores = torch.where(self.seen[:length, :length], scores, lowest)
        weights = self.weight_dropout(scores.softmax(dim=-1))
        mixed = (weights @ value).transpose(1, 2).flatten(2)
        return self.dropout(self.out(mixed))


def gelu_new(x: Tensor) -> Tensor:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))
