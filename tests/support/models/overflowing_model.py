"""A net whose gradient of one batch is no number, and a rate that every step changes."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

BAD = range(8, 12)
"""Samples whose gradient is no number, though their loss is one."""


class Samples(Dataset[tuple[Tensor, int, bool]]):
    in_order = True

    def __len__(self) -> int:
        return 64

    def __getitem__(self, place: int) -> tuple[Tensor, int, bool]:
        values = torch.randn(8, generator=torch.Generator().manual_seed(place))
        return values, place % 5, place in BAD


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 5))


def make_batch(batch_size: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(batch_size, 8),
        torch.randint(5, (batch_size,)),
        torch.zeros(batch_size, dtype=torch.bool),
    )


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    inputs, targets, bad = batch
    found = model(inputs)
    # The root of 0 has an infinite gradient.
    return F.cross_entropy(found, targets) + torch.where(bad, found.sum(1) * 0, 1).sqrt().mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.03)


def build_scheduler(
    optimizer: torch.optim.Optimizer, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=steps)


def build_dataset() -> Samples:
    return Samples()
