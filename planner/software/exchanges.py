"""What ranks exchange once a step, however many micro-batches it has, and torch more often."""

from __future__ import annotations

from typing import Literal

from ..plan.layout import Layout

Held = Literal["no_sync", "set_reshard_after_backward", "set_requires_all_reduce"]
"""What torch 2.13 calls it: DistributedDataParallel.no_sync, and two methods of `FSDPModule`."""


def held_between(layout: Layout, grad_accum: int) -> tuple[Held, ...]:
    """Return what a training loop must call so that ranks exchange as rarely as is predicted.

    Without it DDP reduces gradients in every micro-batch, ZeRO-2 gathers parameters in each, and
    replicas of sharded models add theirs up in each. FSDP scatters gradients in each, as predicted.

    Args:
        layout: of the ranks.
        grad_accum: micro-batches a step.
    """
    if grad_accum == 1 or layout.data * layout.context == 1:
        return ()
    if layout.zero_stage <= 1:
        return ("no_sync",)
    found: list[Held] = []
    if layout.zero_stage == 2:
        found.append("set_reshard_after_backward")
    if layout.replicas > 1:
        found.append("set_requires_all_reduce")
    return tuple(found)
