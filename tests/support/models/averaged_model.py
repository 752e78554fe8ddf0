"""A decoder that keeps an average of its weights, and notes in its metrics where it is."""

import torch
from token_model import (  # noqa: F401
    build_dataset,
    build_model,
    compute_loss,
    make_batch,
    tensor_parallel_plan,
)
from torch import nn

AVERAGES: list["Average"] = []


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-2)


def extra_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> "Average":
    AVERAGES.append(Average(model))
    return AVERAGES[-1]


class Average:
    """An exponential moving average of the weights, and how many steps are in it."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.steps = 0
        self.mean = {name: one.detach().clone() for name, one in model.named_parameters()}

    def after_step(self, step: int) -> None:
        self.steps += 1
        for name, one in self.model.named_parameters():
            self.mean[name].lerp_(one.detach(), 0.2)

    def state_dict(self) -> dict:
        return {"steps": self.steps, "mean": self.mean}

    def load_state_dict(self, state: dict) -> None:
        self.steps = state["steps"]
        for name, value in state["mean"].items():
            self.mean[name].copy_(value)
