"""Transformer-big of DeepLearningExamples.

Source: PyTorch/Translation/Transformer, transformer_wmt_en_de_big_t2t. Embeddings of both languages
and of the output are shared; norms come before the layers (t2t).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 6,
    hidden: int = 1024,
    heads: int = 16,
    ffn: int = 4096,
    vocab: int = 33712,
    dropout: float = 0.1,
) -> nn.Module:
    return Transformer(layers, hidden, heads, ffn, vocab, dropout)


def make_batch(
    batch_size: int, seq_len: int = 32, vocab: int = 33712
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (batch_size, seq_len)
    return torch.randint(vocab, shape), torch.randint(vocab, shape), torch.randint(vocab, shape)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    source, target, wanted = batch
    logits = model(source, target).float()
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), label_smoothing=0.1)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=8.46e-4, betas=(0.9, 0.997))


def TOKENS_PER_SAMPLE(seq_len: int = 32) -> int:
    return seq_len


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))

    def forward(self, x: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q(x), self.k(seen), self.v(seen))
        )
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores + mask
        shares = F.dropout(scores.float().softmax(-1).to(v.dtype), self.dropout, self.training)
        return self.out((shares @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, ffn: int, dropout: float, decodes: bool):
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden)
        self.own = Attention(hidden, heads, dropout)
        self.cross = Attention(hidden, heads, dropout) if decodes else None
        self.norm2 = nn.LayerNorm(hidden) if decodes else None
        self.norm3 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, ffn)
        self.down = nn.Linear(ffn, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, seen: Tensor | None, mask: Tensor | None) -> Tensor:
        inner = self.norm1(x)
        x = x + self.dropout(self.own(inner, inner, mask))
        if self.cross is not None and self.norm2 is not None:
            x = x + self.dropout(self.cross(self.norm2(x), seen, None))
        inner = self.dropout(F.relu(self.up(self.norm3(x))))
        return x + self.dropout(self.down(inner))


class Transformer(nn.Module):
    places: Tensor

    def __init__(self, layers: int, hidden: int, heads: int, ffn: int, vocab: int, dropout: float):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.register_buffer("places", torch.zeros(1024, hidden))
        self.encoder = nn.ModuleList(
            Layer(hidden, heads, ffn, dropout, decodes=False) for _ in range(layers)
        )
        self.decoder = nn.ModuleList(
            Layer(hidden, heads, ffn, dropout, decodes=True) for _ in range(layers)
        )
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(dropout)

    def embed(self, tokens: Tensor) -> Tensor:
        width = self.words.embedding_dim
        return self.dropout(self.words(tokens) * width**0.5 + self.places[: tokens.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x, None, None)
        seen = self.norm1(x)
        x = self.embed(target)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device).triu(1)
        for layer in self.decoder:
            x = layer(x, seen, mask)
        return F.linear(self.norm2(x), self.words.weight)
