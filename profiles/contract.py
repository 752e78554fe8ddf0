"""The user's model file: the contract of docs/model-file.md, and how a file is turned into it.

Needs only the standard library and torch, because the runner carries this file to the instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

Batch = tuple[Any, ...] | dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A user's file, loaded: the functions of the contract with their params already bound."""

    name: str
    path: Path | None
    params: dict[str, Any] = field(default_factory=dict)
    build_model: Callable[[], torch.nn.Module]
    make_batch: Callable[[int], Batch]
    compute_loss: Callable[[torch.nn.Module, Batch], torch.Tensor]
    build_optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
    build_dataset: Callable[[], Any] | None = None
    tokens_per_sample: float | None = None
    default_micro_batch: int | None = None
