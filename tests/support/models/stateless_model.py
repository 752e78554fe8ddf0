"""A model trained by an optimizer without state, with a schedule in a hook and decay of its own."""

import torch
from torch import Tensor, nn


def build_model() -> nn.Module:
    return nn.Linear(8, 1)


def make_batch(batch_size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 8), torch.randn(batch_size, 1)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, targets = batch
    return (model(inputs) - targets).square().mean()


def build_optimizer(parameters, momentum: bool = False) -> torch.optim.Optimizer:
    parameters = list(parameters)
    if momentum:
        return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)
    return Decaying(parameters)


class Decaying(torch.optim.Optimizer):
    """Sign descent, with a decay that does not depend on the learning rate."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-2})
        self.register_step_post_hook(warm_up)

    @torch.no_grad()
    def step(self, closure=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for one in group["params"]:
                one.mul_(0.9)
                if one.grad is not None:
                    one.sub_(group["lr"] * one.grad.sign())


def warm_up(optimizer, *_) -> None:
    for group in optimizer.param_groups:
        group["lr"] += 1e-3
