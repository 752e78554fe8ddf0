"""Processes that take much longer than the rest."""

from __future__ import annotations

import statistics
from typing import Any

import torch.distributed as dist

from ..processes.processes import Processes
from .metrics import duration, say

SLOW_RANK = 1.5
"""Times the median of all ranks."""
SLOWER_BY_S = 0.01


def name_slow_ranks(processes: Processes, parts_s: dict[str, float]) -> None:
    """Say which processes take much longer than the rest to read and run their forward pass.

    Args:
        processes: all of which call it.
        parts_s: seconds of the parts of this one's last step.
    """
    if processes.world == 1:
        return
    own_s = parts_s.get("input", 0.0) + parts_s.get("forward", 0.0)
    times: list[Any] = [0.0] * processes.world
    dist.all_gather_object(times, own_s, processes.host_group)
    middle_s = statistics.median(times)
    slow = [rank for rank, seconds in enumerate(times) if seconds > SLOW_RANK * middle_s]
    if slow and processes.is_first and max(times) - middle_s > SLOWER_BY_S:
        worst = max(slow, key=lambda rank: times[rank])
        say(
            f"slow: rank {', '.join(map(str, slow))} (rank {worst} takes"
            f" {duration(times[worst])} where the median takes {duration(middle_s)})"
        )
