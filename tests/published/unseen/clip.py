"""CLIP as mlfoundations/open_clip trains it (nn.MultiheadAttention, in torch 1.11 written out).

ViT-B/32 by default, 151,277,313 parameters: 12 layers of 768 over 50 patches, 12 of 512 over 77
tokens. A rank scores its own images and captions; one GPU has no others.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 12,
    hidden: int = 768,
    patch: int = 32,
    image: int = 224,
    text_layers: int = 12,
    text_hidden: int = 512,
    embedded: int = 512,
    words: int = 77,
) -> nn.Module:
    return CLIP(layers, hidden, patch, image, text_layers, text_hidden, embedded, words)


def make_batch(batch_size: int, image: int = 224, words: int = 77) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, image, image), torch.randint(49408, (batch_size, words))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, captions, scale = model(*batch)
    scores = scale * images @ captions.t()
    other = scale * captions @ images.t()
    wanted = torch.arange(len(scores), device=scores.device)
    return (F.cross_entropy(scores, wanted) + F.cross_entropy(other, wanted)) / 2


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=5e-4, weight_decay=0.2)


class Block(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.heads = hidden // 64
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2).contiguous().flatten(0, 1)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        query = query * 0.125
        if mask is None:
            scores = torch.bmm(query, key.transpose(1, 2))
        else:
            scores = torch.baddbmm(mask, query, key.transpose(1, 2))
        mixed = torch.bmm(F.softmax(scores, dim=-1), value)
        mixed = mixed.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CLIP(nn.Module):
    def __init__(self, layers, hidden, patch, image, text_layers, text_hidden, embedded, words):
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, patch, bias=False)
        self.first = nn.Parameter(torch.zeros(hidden))
        self.places = nn.Parameter(torch.zeros((image // patch) ** 2 + 1, hidden))
        self.norm_pre, self.norm_post = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.seeing = nn.ModuleList(Block(hidden) for _ in range(layers))
        self.image_out = nn.Parameter(torch.randn(hidden, embedded) * 0.02)
        self.words = nn.Embedding(49408, text_hidden)
        self.steps = nn.Parameter(torch.zeros(words, text_hidden))
        self.reading = nn.ModuleList(Block(text_hidden) for _ in range(text_layers))
        self.norm = nn.LayerNorm(text_hidden)
        self.text_out = nn.Parameter(torch.randn(text_hidden, embedded) * 0.02)
        self.scale = nn.Parameter(torch.ones(()) * 2.66)

    def forward(self, images: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.patches(images).flatten(2).transpose(1, 2)
        first = self.first.to(x.dtype) + torch.zeros_like(x[:, :1])
        x = self.norm_pre(torch.cat((first, x), 1) + self.places.to(x.dtype))
        for block in self.seeing:
            x = block(x, None)
        seen = self.norm_post(x[:, 0]) @ self.image_out
        y = self.words(words) + self.steps
        length = words.shape[1]
        mask = torch.full((length, length), -1e4, device=y.device, dtype=y.dtype).triu(1)
        for block in self.reading:
            y = block(y, mask)
        read = self.norm(y)[torch.arange(len(y), device=y.device), words.argmax(-1)]
        read = read @ self.text_out
        return F.normalize(seen, dim=-1), F.normalize(read, dim=-1), self.scale.exp()
