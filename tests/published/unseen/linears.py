"""The model of torch's recipe on ZeroRedundancyOptimizer: twenty square layers, a squared error."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(layers: int = 20, width: int = 2000) -> nn.Module:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))


def make_batch(batch_size: int, width: int = 2000) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, width), torch.randn(batch_size, width)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)
