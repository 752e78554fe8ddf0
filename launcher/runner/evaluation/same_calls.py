"""Metrics that call the model more often on one rank than on others are said at that call.

Where ranks share layers, every call of the model is a collective: without this they would wait for
each other until they give up. A small exchange before each call, and one when the metrics are made,
is a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ....catalog.errors import UserFileError
from ....planner.plan.layout import Layout
from ....profiles.user_model.checks import Batch
from ..processes.processes import Processes

MetricsFunction = Callable[[nn.Module, Batch], Mapping[str, Any]]


def with_same_calls(
    measure: MetricsFunction, layout: Layout, processes: Processes
) -> MetricsFunction:
    """Return the function, which then fails on all ranks once their calls of the model differ."""
    shares_layers = layout.tensor > 1 or layout.pipeline > 1 or layout.zero_stage == 3
    if processes.host_group is None or not shares_layers:
        return measure

    def watched(model: nn.Module, batch: Batch) -> Mapping[str, Any]:
        # Before those of pipeline stages, which wait for the others to compare what is given.
        begins = model.register_forward_pre_hook(
            lambda *_: _agree(processes, calls=True), prepend=True
        )
        try:
            found = measure(model, batch)
        finally:
            begins.remove()
        _agree(processes, calls=False)
        return found

    return watched


def _agree(processes: Processes, *, calls: bool) -> None:
    """Tell the others whether this rank calls the model now.

    Raises:
        UserFileError: on every rank, where only some do.
    """
    told = torch.tensor([int(calls)])
    dist.all_reduce(told, group=processes.host_group)
    if 0 < int(told) < processes.world:
        raise UserFileError(
            f"compute_metrics() calls the model more often on {int(told)} of {processes.world}"
            " ranks than on the others, which share its layers and would wait for it.",
            fix="call it as often for every batch, whatever the batch holds and whichever rank it"
            " is on.",
        )
