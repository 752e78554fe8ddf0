"""A small model whose file leaves something on its parameters, as `what` says."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 5)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.scales: list[nn.Parameter] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) * (self.scales or [self.scale])[0]
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Samples(torch.utils.data.Dataset[tuple[Tensor, int]]):
    in_order = True

    def __init__(self, count: int = 64) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return torch.randn(8, generator=torch.Generator().manual_seed(place)), place % 5


def build_model(what: str = "nothing") -> Net:
    model = Net()
    if what == "marks":
        for name, parameter in model.named_parameters():
            parameter.no_decay = parameter.ndim < 2 or "first" in name  # pyright: ignore[reportAttributeAccessIssue]
    if what == "hook":
        model.scale.register_hook(lambda gradient: gradient * 0)
    if what == "list":
        model.scales = [model.scale]
    if what == "gradients":
        model(torch.ones(4, 8)).square().sum().backward()
    return model


def make_batch(batch_size: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 8), torch.randint(5, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def build_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    free = [one for one in parameters if getattr(one, "no_decay", False)]
    others = [one for one in parameters if not getattr(one, "no_decay", False)]
    groups = [
        {"params": free, "weight_decay": 0.0, "lr": 0.03},
        {"params": others, "weight_decay": 2.0},
    ]
    return torch.optim.AdamW([one for one in groups if one["params"]], lr=0.01)


def build_dataset() -> Samples:
    return Samples()


def build_eval_dataset() -> Samples:
    return Samples(21)


def tensor_parallel_plan() -> dict[str, str]:
    return {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}
