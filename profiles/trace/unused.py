"""Parameters that the loss leaves out: trainable, but without a gradient, so never updated."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

from ...catalog.text.quantity import format_bytes

MOST_NAMES = 3
"""Parameters that are named in the note."""


def without_gradient(model: nn.Module) -> tuple[nn.Parameter, ...]:
    """Return the trainable parameters to which a backward pass gave no gradient."""
    return tuple(p for p in model.parameters() if p.requires_grad and p.grad is None)


def make_state(optimizer: torch.optim.Optimizer, unused: Collection[nn.Parameter]) -> None:
    """Take one step on zero gradients: what the optimizer keeps is there in every later step.

    Args:
        optimizer: without state yet.
        unused: parameters that get no gradient. An optimizer passes over them (torch.optim.Adam,
            `_init_group`: `if p.grad is not None`), and makes no state for them.
    """
    left_out = set(map(id, unused))
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and id(parameter) not in left_out:
                parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def unused_notes(model: nn.Module, unused: Collection[nn.Parameter]) -> list[str]:
    """Return what the user should know of parameters that get no gradient; [] without any."""
    if not unused:
        return []
    left_out = set(map(id, unused))
    names = [name for name, p in model.named_parameters() if id(p) in left_out]
    shown = ", ".join(names[:MOST_NAMES])
    shown += f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    size = format_bytes(sum(p.numel() * p.element_size() for p in unused))
    return [
        f"{sum(p.numel() for p in unused):,} parameters ({size}: {shown}) are trainable but get no"
        " gradient: the optimizer never updates them, and data-parallel replicas (DDP) send zeros"
        " for them; freeze them with requires_grad_(False), or remove them"
    ]
