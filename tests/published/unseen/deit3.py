"""ViT as DeiT III pre-trains it on ImageNet-21k: scaled branches, attention written out.

Program: facebookresearch/deit, models_v2.py of 2022: `qkv` with a bias, a factor for each channel
of both branches, the class token is classified; ViT-B with 21,841 classes by default.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    patch: int = 16,
    drop_path: float = 0.1,
    classes: int = 21841,
) -> nn.Module:
    return ViT(layers, hidden, heads, patch, drop_path, classes)


def make_batch(batch_size: int, classes: int = 21841) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, 224, 224), torch.randint(classes, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.02)


def dropped(x: Tensor, share: float) -> Tensor:
    if not share:
        return x
    kept = x.new_empty(len(x), 1, 1).bernoulli_(1 - share)
    return x.div(1 - share) * kept


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, drop_path: float):
        super().__init__()
        self.heads, self.drop_path = heads, drop_path
        self.norm1, self.norm2 = nn.LayerNorm(hidden, eps=1e-6), nn.LayerNorm(hidden, eps=1e-6)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.scale1 = nn.Parameter(1e-4 * torch.ones(hidden))
        self.scale2 = nn.Parameter(1e-4 * torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        shares = ((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)).softmax(-1)
        mixed = self.out((shares @ v).transpose(1, 2).flatten(2))
        x = x + dropped(self.scale1 * mixed, self.drop_path)
        inner = self.down(F.gelu(self.up(self.norm2(x))))
        return x + dropped(self.scale2 * inner, self.drop_path)


class ViT(nn.Module):
    def __init__(
        self, layers: int, hidden: int, heads: int, patch: int, drop_path: float, classes: int
    ):
        super().__init__()
        self.embed = nn.Conv2d(3, hidden, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.zeros(1, (224 // patch) ** 2, hidden))
        self.blocks = nn.ModuleList(Block(hidden, heads, drop_path) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden, eps=1e-6), nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2) + self.positions
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])
