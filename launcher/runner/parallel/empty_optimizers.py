"""Optimizers of no parameters, which a pipeline stage has where none of its own is of their kind.

    torch.optim.Muon([one for one in parameters if one.ndim > 1], lr=0.02)

torch refuses to make one of an empty list. In a stage it is right: it trains nothing there, and
`build_scheduler()` gets as many optimizers as the file makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def empty_optimizers() -> Iterator[None]:
    """Let an optimizer be made of no parameters inside: it has one group, of none."""
    made: Any = torch.optim.Optimizer.__init__

    def make(self: torch.optim.Optimizer, params: Any, defaults: dict[str, Any]) -> None:
        # A tensor or a dictionary is a mistake that torch names.
        given = params if isinstance(params, Tensor | dict) else list(params)
        if len(given):
            made(self, given, defaults)
            return
        made(self, [nn.Parameter(torch.zeros(0))], defaults)
        self.param_groups[0]["params"] = []

    torch.optim.Optimizer.__init__ = make
    try:
        yield
    finally:
        torch.optim.Optimizer.__init__ = made
