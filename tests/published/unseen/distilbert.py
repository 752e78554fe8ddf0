"""DistilBertForSequenceClassification of transformers in 2023 (attention written out).

6 layers of 768, dropouts of 0.1 and 0.2, two classes: 66,955,010 parameters. The mask of padding
fills scores, whatever it holds.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 6, hidden: int = 768, heads: int = 12, seq_len: int = 512
) -> nn.Module:
    return DistilBert(layers, hidden, heads)


def make_batch(batch_size: int, seq_len: int = 512) -> tuple[Tensor, Tensor, Tensor]:
    tokens = torch.randint(30522, (batch_size, seq_len))
    return tokens, torch.ones(batch_size, seq_len), torch.randint(2, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0], batch[1]), batch[2])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=5e-5)


def TOKENS_PER_SAMPLE(seq_len: int = 512) -> int:
    return seq_len


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.value, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.norm1, self.norm2 = nn.LayerNorm(hidden, 1e-12), nn.LayerNorm(hidden, 1e-12)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query = query / math.sqrt(x.shape[-1] // self.heads)
        scores = torch.matmul(query, key.transpose(2, 3))
        hidden = (mask == 0)[:, None, None].expand_as(scores)
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        mixed = torch.matmul(self.dropout(scores.softmax(-1)), value)
        x = self.norm1(self.out(mixed.transpose(1, 2).contiguous().flatten(2)) + x)
        return self.norm2(self.dropout(self.down(F.gelu(self.up(x)))) + x)


class DistilBert(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int):
        super().__init__()
        self.words, self.places = nn.Embedding(30522, hidden), nn.Embedding(512, hidden)
        self.norm, self.dropout = nn.LayerNorm(hidden, 1e-12), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.before, self.classes = nn.Linear(hidden, hidden), nn.Linear(hidden, 2)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        at = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.norm(self.words(tokens) + self.places(at)))
        for block in self.blocks:
            x = block(x, mask)
        return self.classes(F.dropout(F.relu(self.before(x[:, 0])), 0.2, self.training))
