"""ViT as timm of 2021 has it, with eager attention, for fine-tuning.

The mean of the patches is classified.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 24, hidden: int = 1024, heads: int = 16, patch: int = 16, drop_path: float = 0.2
) -> nn.Module:
    return ViT(layers, hidden, heads, patch, drop_path)


def make_batch(batch_size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, 224, 224), torch.rand(batch_size, 1000)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, shares = batch
    return (-shares * F.log_softmax(model(images).float(), -1)).sum(-1).mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.05)


def dropped(x: Tensor, share: float) -> Tensor:
    if not share:
        return x
    kept = x.new_empty(len(x), 1, 1).bernoulli_(1 - share)
    return x / (1 - share) * kept


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, drop_path: float):
        super().__init__()
        self.heads = heads
        self.drop_path = drop_path
        self.norm1 = nn.LayerNorm(hidden, eps=1e-6)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-6)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            self.qkv(self.norm1(x))
            .unflatten(-1, (3, self.heads, -1))
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        shares = ((q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5).softmax(-1)
        x = x + dropped(self.out((shares @ v).transpose(1, 2).flatten(2)), self.drop_path)
        return x + dropped(self.down(F.gelu(self.up(self.norm2(x)))), self.drop_path)


class ViT(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, patch: int, drop_path: float):
        super().__init__()
        self.embed = nn.Conv2d(3, hidden, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.zeros(1, (224 // patch) ** 2 + 1, hidden))
        self.blocks = nn.ModuleList(
            Block(hidden, heads, drop_path * index / max(1, layers - 1)) for index in range(layers)
        )
        self.norm = nn.LayerNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 1:].mean(1)))
