"""Parameter groups with settings of their own, and a schedule with a rate for each of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 5)
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Samples(torch.utils.data.Dataset[tuple[Tensor, int]]):
    in_order = True

    def __len__(self) -> int:
        return 64

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return torch.randn(8, generator=torch.Generator().manual_seed(place)), place % 5


def build_model() -> Net:
    return Net()


def make_batch(batch_size: int = 2) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 8), torch.randint(5, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1)


def build_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    norms = [one for one in parameters if one.ndim < 2]
    weights = [one for one in parameters if one.ndim > 1]
    groups = [
        {"params": norms, "weight_decay": 0.0, "lr": 0.03, "name": "norms"},
        {"params": weights, "weight_decay": 2.0, "betas": (0.8, 0.9), "name": "weights"},
    ]
    return torch.optim.AdamW(groups, lr=0.01)


def build_scheduler(
    optimizer: torch.optim.Optimizer, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.03, 0.01], total_steps=steps + 1)


def build_dataset() -> Samples:
    return Samples()


def tensor_parallel_plan() -> dict[str, str]:
    return {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}
