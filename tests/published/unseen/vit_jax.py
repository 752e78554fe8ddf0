"""Vision transformer of NVIDIA's JAX-Toolbox: eager attention, dropout, a layer before the head.

Source: rosetta/rosetta/projects/vit/layers.py and configs/{base,G,pretrain}.gin. ViT-B/16 has
`layers=12 hidden=768 heads=12 ffn=3072 patch=16`, ViT-G/14 the defaults.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 48,
    hidden: int = 1664,
    heads: int = 16,
    ffn: int = 8192,
    patch: int = 14,
    image: int = 224,
    dropout: float = 0.1,
    representation: bool = True,
) -> nn.Module:
    return ViT(layers, hidden, heads, ffn, patch, image, dropout, representation)


def make_batch(batch_size: int, image: int = 224) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, image, image), torch.randint(1000, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, labels = batch
    return F.cross_entropy(model(images).float(), labels)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.3)


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, ffn: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden, eps=1e-5)
        self.q, self.k, self.v = (nn.Linear(hidden, hidden) for _ in range(3))
        self.out = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-5)
        self.up = nn.Linear(hidden, ffn)
        self.down = nn.Linear(ffn, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm1(x)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q(inner), self.k(inner), self.v(inner))
        )
        shares = ((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)).softmax(-1)
        x = x + self.dropout(self.out((shares @ v).transpose(1, 2).flatten(2)))
        inner = self.dropout(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return x + self.dropout(self.down(inner))


class ViT(nn.Module):
    def __init__(
        self,
        layers: int,
        hidden: int,
        heads: int,
        ffn: int,
        patch: int,
        image: int,
        dropout: float,
        representation: bool,
    ):
        super().__init__()
        self.embed = nn.Conv2d(3, hidden, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, hidden))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(hidden, heads, ffn, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden, eps=1e-5)
        self.before = nn.Linear(hidden, hidden) if representation else None
        self.head = nn.Linear(hidden, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.positions
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)[:, 0]
        if self.before is not None:
            x = torch.tanh(self.before(x))
        return self.head(x)
