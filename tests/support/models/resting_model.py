"""A frozen batch norm, put in evaluation mode in build_model(), or kept so by train()."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 2)
        self.keeps = keeps

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))

    def train(self, mode: bool = True) -> Net:
        super().train(mode)
        if self.keeps:
            self.norm.eval()
        return self


def build_model(rests: str = "part") -> nn.Module:
    model = Net(rests == "kept")
    if rests == "whole":
        model.eval()
    elif rests != "none":
        model.norm.eval()
    return model


def make_batch(batch_size: int = 4) -> tuple[Tensor]:
    return (torch.randn(batch_size, 4) + 3,)


def compute_loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    return model(batch[0]).square().mean()


def extra_state(model: Net, optimizer: torch.optim.Optimizer) -> Told:
    return Told(model)


class Told:
    """Tells after the last step whether the statistics of the norm moved."""

    def __init__(self, model: Net) -> None:
        self.model = model

    def after_step(self, step: int) -> None:
        mean = self.model.norm.get_buffer("running_mean")
        print("moved" if mean.abs().sum() > 0 else "still", flush=True)

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """There is none."""
