"""Whisper as transformers of 2022 and 2023 fine-tunes it (attention written out): small by default.

30 seconds of sound are always 80 x 3,000 features, whatever the sample. Program:
models/whisper/modeling_whisper.py; positions of the encoder are fixed, the head is tied.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB = 51_865


def build_model(
    layers: int = 12, hidden: int = 768, heads: int = 12, frames: int = 3000, words: int = 64
) -> nn.Module:
    return Whisper(layers, hidden, heads, frames)


def make_batch(
    batch_size: int, frames: int = 3000, words: int = 64
) -> tuple[Tensor, Tensor, Tensor]:
    sound = torch.randn(batch_size, 80, frames)
    seen, wanted = torch.randint(VOCAB, (2, batch_size, words))
    return sound, seen, wanted


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    logits = model(batch[0], batch[1])
    return F.cross_entropy(logits.view(-1, VOCAB), batch[2].reshape(-1))


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for one in parameters if one.requires_grad], lr=1e-5)


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.value = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
        query = self.query(x) * (x.shape[-1] // self.heads) ** -0.5
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2).contiguous().flatten(0, 1)
            for part in (query, self.key(seen), self.value(seen))
        )
        scores = torch.bmm(query, key.transpose(1, 2))
        if mask is not None:
            scores = scores + mask
        mixed = torch.bmm(F.softmax(scores, dim=-1), value)
        mixed = mixed.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
        return self.out(mixed)


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, crosses: bool):
        super().__init__()
        self.norm1, self.norm3 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.own = Attention(hidden, heads)
        self.norm2 = nn.LayerNorm(hidden) if crosses else None
        self.cross = Attention(hidden, heads) if crosses else None
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
        inner = self.norm1(x)
        x = x + self.own(inner, inner, mask)
        if self.cross is not None and self.norm2 is not None:
            x = x + self.cross(self.norm2(x), seen, None)
        return x + self.down(F.gelu(self.up(self.norm3(x))))


class Whisper(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, frames: int):
        super().__init__()
        self.conv1 = nn.Conv1d(80, hidden, 3, padding=1)
        self.conv2 = nn.Conv1d(hidden, hidden, 3, stride=2, padding=1)
        self.places = nn.Embedding(frames // 2, hidden).requires_grad_(False)
        self.encoder = nn.ModuleList(Layer(hidden, heads, False) for _ in range(layers))
        self.heard = nn.LayerNorm(hidden)
        self.words, self.steps = nn.Embedding(VOCAB, hidden), nn.Embedding(448, hidden)
        self.decoder = nn.ModuleList(Layer(hidden, heads, True) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, VOCAB, bias=False)
        self.head.weight = self.words.weight

    def forward(self, sound: Tensor, words: Tensor) -> Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(sound)))).transpose(1, 2)
        x = x + self.places.weight
        for layer in self.encoder:
            x = layer(x, x, None)
        seen = self.heard(x)
        length = words.shape[1]
        x = self.words(words) + self.steps.weight[:length]
        mask = torch.full((length, length), -1e4, device=x.device, dtype=x.dtype).triu(1)
        for layer in self.decoder:
            x = layer(x, seen, mask)
        return self.head(self.norm(x))
