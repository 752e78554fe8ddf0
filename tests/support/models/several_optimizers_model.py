"""Matrices by one optimizer and all else by AdamW, each with a schedule of its own."""

from collections.abc import Iterable

import torch
from grouped_model import build_dataset, build_model, compute_loss, make_batch  # noqa: F401
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler


def build_optimizer(
    parameters: list[nn.Parameter], matrices: str = "sgd"
) -> list[torch.optim.Optimizer]:
    weights = [one for one in parameters if one.ndim > 1]
    others = [one for one in parameters if one.ndim < 2]
    of_weights = (
        torch.optim.Muon(weights, lr=0.02)
        if matrices == "muon"
        else torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=0.1)
    )
    return [of_weights, torch.optim.AdamW(others, lr=0.03, weight_decay=0.0)]


def build_scheduler(optimizer: Iterable[torch.optim.Optimizer], steps: int) -> list[LRScheduler]:
    of_weights, of_others = optimizer
    return [
        CosineAnnealingLR(of_weights, steps),
        LinearLR(of_others, start_factor=0.2, total_iters=steps // 2),
    ]


def tensor_parallel_plan() -> dict[str, str]:
    return {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}
