"""A decoder whose file makes a learning-rate schedule of its own."""

import torch
from token_model import (  # noqa: F401
    build_dataset,
    build_model,
    compute_loss,
    make_batch,
    tensor_parallel_plan,
)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-2)


def build_scheduler(optimizer: torch.optim.Optimizer, steps: int, power: float = 1.0):
    return torch.optim.lr_scheduler.PolynomialLR(optimizer, steps, power)
