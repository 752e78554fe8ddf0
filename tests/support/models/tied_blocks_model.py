"""Blocks that share weights in several ways; `--param shared=` says which."""

from typing import Any

import torch
from grouped_model import Net, build_dataset, compute_loss, make_batch  # noqa: F401
from torch import nn


def build_model(shared: str = "weight") -> nn.Module:
    model: Any = Net()
    if shared == "block":  # As ALBERT: one block, run four times.
        model.blocks = nn.ModuleList([model.blocks[0]] * 4)
    elif shared == "part":  # Each block its own norm, all of them one linear.
        for block in model.blocks:
            block.up = model.blocks[0].up
    elif shared == "weight":
        for block in model.blocks:
            block.up.weight = model.blocks[0].up.weight
    elif shared == "rest":
        model.other = nn.LayerNorm(16)
        model.blocks[0].norm.weight = model.other.weight
    return model


def build_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)
