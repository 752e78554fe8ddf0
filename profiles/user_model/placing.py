"""Putting what a user's functions return on a device. Standard library and torch only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def placed(value: Any, device: torch.device | str, dtype: torch.dtype | None = None) -> Any:
    """Return a batch, or anything inside one, on a device.

    Args:
        value: tensors in tuples, lists and dictionaries; other objects move by their own `to`.
        device: where to.
        dtype: of floating-point tensors, for a model whose layers are of it; None keeps theirs.
    """
    if isinstance(value, Tensor):
        kept = dtype if dtype is not None and value.is_floating_point() else value.dtype
        return value.to(device, kept, non_blocking=True)
    if isinstance(value, dict):
        return {key: placed(item, device, dtype) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(placed(item, device, dtype) for item in value)
    move = getattr(value, "to", None)
    return value if move is None else move(device)
