"""Decoder of Mesh-Transformer-JAX (GPT-J): attention and feed-forward read one norm, side by side.

Source: kingoflolz/mesh-transformer-jax, mesh_transformer/layers.py of 2021-06: no biases in
attention, biases in the feed-forward layers and the head, T5's relative biases or rotary positions
(here none are computed but for the mask), untied embeddings.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 28, hidden: int = 4096, heads: int = 16, vocab: int = 50400, seq_len: int = 2048
) -> nn.Module:
    return GPTJ(layers, hidden, heads, vocab)


def make_batch(batch_size: int, vocab: int = 50400, seq_len: int = 2048) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    return tokens, torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).float().flatten(0, 1), targets.flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-4)


def TOKENS_PER_SAMPLE(seq_len: int = 2048) -> int:
    return seq_len


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(hidden)
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(x)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q(inner), self.k(inner), self.v(inner))
        )
        length = x.shape[1]
        hidden = torch.full((length, length), float("-inf"), device=x.device, dtype=q.dtype).triu(1)
        scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5 + hidden
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return x + self.out(mixed) + self.down(F.gelu(self.up(inner), approximate="tanh"))


class GPTJ(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, vocab: int):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
