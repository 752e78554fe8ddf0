"""When a run with a deadline leaves its spot machines: the rule of the guard, for planning.

The guard is copied to the machines and may import nothing of the planner, nor the planner anything
of it; `launcher/guard/decisions/handover.py` holds the same rule, and a test that both agree.
"""

from __future__ import annotations

from typing import Any

RESTARTS = 2.0
"""Slowest starts of machines for which time is kept: one for spot machines that are taken away at
the last moment, one for the on-demand machines after them."""


def stays_on_spot(left_s: Any, *, saved_rest_s: Any, slowest_restart_s: Any) -> Any:
    """Return whether there is time for one more loss of the machines.

    Numbers, or arrays of one shape; seconds.

    Args:
        left_s: until the deadline.
        saved_rest_s: the steps after the last checkpoint, at the timed step.
        slowest_restart_s: the slowest start of machines.
    """
    return left_s >= RESTARTS * slowest_restart_s + saved_rest_s


def gains_by_moving(left_s: Any, *, rest_s: Any, slowest_restart_s: Any) -> Any:
    """Return whether on-demand machines can still meet the deadline.

    Numbers, or arrays of one shape; seconds.

    Args:
        left_s: until the deadline.
        rest_s: the steps that are left, at the timed step.
        slowest_restart_s: the slowest start of machines.
    """
    return left_s >= slowest_restart_s + rest_s
