"""ConvMixer of locuslab/convmixer: 1536/20 (kernel 9, patch 7) by default, 51,625,960 weights."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(width: int = 1536, depth: int = 20, kernel: int = 9, patch: int = 7) -> nn.Module:
    return ConvMixer(width, depth, kernel, patch)


def make_batch(batch_size: int, image: int = 224) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, image, image), torch.rand(batch_size, 1000)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, shares = batch
    return (-shares * F.log_softmax(model(images).float(), -1)).sum(-1).mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, eps=1e-3, weight_decay=2e-5)


def mixed(conv: nn.Conv2d, width: int) -> nn.Sequential:
    return nn.Sequential(conv, nn.GELU(), nn.BatchNorm2d(width))


class ConvMixer(nn.Module):
    def __init__(self, width: int, depth: int, kernel: int, patch: int):
        super().__init__()
        self.stem = mixed(nn.Conv2d(3, width, patch, patch), width)
        self.places = nn.ModuleList(
            mixed(nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width), width)
            for _ in range(depth)
        )
        self.channels = nn.ModuleList(
            mixed(nn.Conv2d(width, width, 1), width) for _ in range(depth)
        )
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for place, channel in zip(self.places, self.channels, strict=True):
            x = channel(x + place(x))
        return self.head(x.mean((2, 3)))
