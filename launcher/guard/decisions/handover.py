"""When a run moves from spot to on-demand machines, so that no preemption costs its deadline.

The machines may be taken away at any moment. The engine then starts the run again on spot machines,
this guard finds that there is no more time for a second such loss, and hands over: two starts. So
a run stays on spot machines while

    deadline - now ≥ 2 × restart + (total_steps - last saved step) × step

and hands over after that, as long as it gains by it:

    deadline - now ≥ restart + (total_steps - step now) × step

A step counts as what it takes in the end, with its share of checkpoints, evaluation and failures.
Not before a first step: until then its processes wait for each other and cannot be stopped.
"""

from __future__ import annotations

import statistics

from ..orders import Orders
from .verdicts import Reading, Verdict

HAND_OVER = "hand-over"
RESTARTS = 2.0


def hand_over(orders: Orders, reading: Reading, *, now_s: float) -> Verdict | None:
    """Return the verdict on a run that must leave its spot machines; None: it stays.

    Args:
        orders: with a deadline.
        reading: what was seen of the run.
        now_s: since 1970.
    """
    wanted, deadline_s = orders.hand_over, orders.deadline_s
    if wanted is None or deadline_s is None or reading.trained == 0:
        return None
    timed_s = statistics.median(reading.times_s) if reading.times_s else wanted.step_s
    step_s = timed_s * wanted.slower
    done = reading.step or 0
    again_s = RESTARTS * wanted.restart_s + (wanted.total_steps - reading.saved_step) * step_s
    rest_s = wanted.restart_s + (wanted.total_steps - done) * step_s
    left_s = deadline_s - now_s
    if done >= wanted.total_steps or left_s >= again_s or left_s < rest_s:
        return None
    return Verdict(
        HAND_OVER,
        f"The deadline is in {left_s / 60:.0f} minutes, too soon for these spot machines to be"
        " taken away: it moves to on-demand machines.",
        0,
    )
