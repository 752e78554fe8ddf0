"""Repeated blocks whose inputs are floating-point numbers, as images are."""

import torch
from torch import Tensor, nn


def build_model(layers: int = 4, width: int = 16) -> nn.Module:
    return Stack(layers, width)


def make_batch(batch_size: int = 2, width: int = 16) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, width), torch.randint(4, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, classes = batch
    return nn.functional.cross_entropy(model(inputs).float(), classes)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


class Stack(nn.Module):
    def __init__(self, layers: int, width: int):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
