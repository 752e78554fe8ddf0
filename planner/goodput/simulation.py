"""Runs with stops, drawn event by event: what the closed forms of this folder are held against.

Every run is one element of the arrays, and every turn of the loop takes each run to its next
event: its end, a stop, or its move to on-demand machines. Between two events nothing is random.
Nothing here uses a mean or a variance of `restarts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .deadline.hand_over import RESTARTS, gains_by_moving
from .restarts import MOST_INTERVAL_S
from .spread import CUT, Spread, normal_points
from .stop_sources import Stopping

Array = Any
"""numpy array of floats, one for every run."""
MOST_TURNS = 100_000
"""Turns after which a simulation gives up on the runs that never end."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """What is to be done, and what a stop and a checkpoint take; arrays of one shape [runs]."""

    work_s: Array
    """Steps, evaluation and slow steps, without checkpoints."""
    segments: Array
    """Parts into which it is cut, each with a checkpoint at its end."""
    stall_s: Array
    restart_s: Array
    begun_s: float = 0.0
    """Billed before the first step."""
    increment_s: float = 0.0
    """Every bill is rounded up to whole ones; 0: none is. A stop ends a bill."""

    @property
    def part_s(self) -> Array:
        """Seconds of a part with its checkpoint."""
        return self.work_s / self.segments + self.stall_s


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """The rule by which a run on spot machines moves to on-demand ones; arrays [runs]."""

    deadline_s: Array
    """From the first step."""
    slowest_restart_s: Array
    """The start of machines for which the rule keeps time, twice."""
    steps_s: Array
    """Work that is left as the rule counts it at the start: steps times the timed step."""
    failure_per_s: Array
    """Rate of stops on on-demand machines."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What became of the runs; seconds, arrays [runs]."""

    elapsed_s: Array
    """From the first step to the last."""
    spot_s: Array
    """Billed on the machines it began on, of whatever purchase."""
    on_demand_s: Array
    """Billed on on-demand machines to which it moved."""
    stops: Array
    rounded_s: Array
    """All that is billed with the start, every bill rounded up on its own."""

    @property
    def billed_s(self) -> Array:
        """All that is billed."""
        return self.spot_s + self.on_demand_s


def simulate(
    runs: Runs, stopping: Stopping, rng: np.random.Generator, deadline: Deadline | None = None
) -> Simulated:
    """Return what becomes of runs on machines that stop so.

    Args:
        runs: arrays [runs].
        stopping: when machines go; on-demand machines after a move fail as a Poisson process.
        rng: seeded; of the failures after a move.
        deadline: the rule of the hand-over, where there is one.

    Raises:
        RuntimeError: runs did not end.
    """
    state = _State.of(runs)
    for _ in range(MOST_TURNS):
        which = np.flatnonzero(state.left > 0)
        if not len(which):
            zero = np.zeros_like(state.now_s)
            moved_s = np.where(state.moved, state.on_demand_s, zero)
            return Simulated(
                elapsed_s=state.now_s,
                spot_s=state.spot_s,
                on_demand_s=moved_s,
                stops=state.stops,
                rounded_s=state.rounded_s,
            )
        for moved in (False, True):
            of = which[state.moved[which] == moved]
            if len(of) and moved and deadline is not None:
                _turn_on_demand(runs, state, of, deadline, rng)
            elif len(of):
                _turn(runs, state, of, stopping, deadline)
    raise RuntimeError(
        f"{(state.left > 0).sum()} simulated runs did not end: they are stopped too often"
    )


def drawn_factors(
    spread: Sequence[Spread], count: int, rng: np.random.Generator, *, cut: float = CUT
) -> Array:
    """Return factors [cases, count], equally spread over their distribution, in random order.

    Args:
        spread: one for every case.
        count: runs of each.
        rng: seeded.
        cut: standard deviations at which the distribution is cut off; inf where it is not.
    """
    z = np.clip(normal_points(count), -cut, cut)
    up = np.array([[one.up] for one in spread])
    down = np.array([[one.down] for one in spread])
    return rng.permuted(np.exp(z * np.where(z > 0, up, down)), axis=1)


@dataclass
class _State:
    """Where every run is."""

    left: Array
    """Parts to do, from the last checkpoint; the last of them may be a part of one."""
    begin_s: Array
    """Restart that comes first."""
    now_s: Array
    spot_s: Array
    on_demand_s: Array
    stops: Array
    bill_s: Array
    """Of the bill that is open."""
    rounded_s: Array
    """Of those that are closed."""
    moved: Array

    @classmethod
    def of(cls, runs: Runs) -> _State:
        """Return the beginning."""
        left = np.array(runs.segments, dtype=float)
        zeros = [np.zeros_like(left) for _ in range(7)]
        begun = cls(left, *zeros, moved=np.zeros(left.shape, dtype=bool))
        begun.bill_s += runs.begun_s
        return begun

    def bill(self, runs: Runs, of: Array, ran_s: Array, closed: Array) -> None:
        """Add to the bills of the runs `of`, and round up those that are closed."""
        self.bill_s[of] += ran_s
        over = of[closed]
        bills_s, every_s = self.bill_s[over], runs.increment_s
        self.rounded_s[over] += np.ceil(bills_s / every_s) * every_s if every_s else bills_s
        self.bill_s[over] = 0.0


def _turn(
    runs: Runs, state: _State, of: Array, stopping: Stopping, deadline: Deadline | None
) -> None:
    """Take the runs `of` to their next event on the machines they began on."""
    part_s, begin_s, left = runs.part_s[of], state.begin_s[of], state.left[of]
    stop_s = stopping.next_s(state.now_s[of], of)
    whole_s = begin_s + left * part_s
    hand_s = np.full_like(whole_s, np.inf)
    if deadline is not None:
        hand_s = begin_s + _until_hand_over(runs, state, of, deadline)
    ran_s = np.minimum(np.minimum(stop_s, whole_s), hand_s)
    stopped, handed = stop_s <= ran_s, (hand_s <= ran_s) & (hand_s < stop_s)
    ended = (whole_s <= ran_s) & ~stopped & ~handed
    stopping.took(ran_s, stopped, of)
    state.now_s[of] += ran_s
    state.spot_s[of] += ran_s
    state.bill(runs, of, ran_s, stopped | ended | handed)
    trained = np.maximum(0.0, (ran_s - begin_s) / part_s)
    # A stop goes back to a checkpoint; a run that hands over, or has notice, writes one first.
    done = np.where(handed | stopping.saved(of, stopped), trained, np.floor(trained))
    state.left[of] = np.where(ended, 0.0, np.maximum(left - done, 1e-12))
    state.begin_s[of] = runs.restart_s[of]
    state.moved[of] = handed
    lost = of[stopped]
    state.stops[lost] += 1
    if len(lost):
        _wait(runs, state, lost, stopping, deadline)


def _wait(
    runs: Runs, state: _State, lost: Array, stopping: Stopping, deadline: Deadline | None
) -> None:
    """Let runs that were stopped wait for machines, no longer than a deadline allows."""
    wait_s = stopping.wait_s(state.now_s[lost], lost)
    if deadline is not None:
        rest_s = deadline.steps_s[lost] * state.left[lost] / runs.segments[lost]
        left_s = deadline.deadline_s[lost] - state.now_s[lost]
        slowest_s = deadline.slowest_restart_s[lost]
        limit_s = left_s - RESTARTS * slowest_s - rest_s
        gains = gains_by_moving(left_s, rest_s=rest_s, slowest_restart_s=slowest_s)
        moves = gains & (wait_s > limit_s)
        wait_s = np.where(moves, np.maximum(limit_s, 0.0), wait_s)
        state.moved[lost] = moves
    state.now_s[lost] += wait_s


def _until_hand_over(runs: Runs, state: _State, of: Array, deadline: Deadline) -> Array:
    """Return how long runs train until the rule moves them, from the end of their restart; or inf.

    While a part is trained the time that is left falls by as much, and what is left of the work, as
    saved, stays; so the rule is first met in the part after which it would no longer hold.
    """
    part_s, left = runs.part_s[of], state.left[of]
    step_part_s = deadline.steps_s[of] / runs.segments[of]
    slowest_s = deadline.slowest_restart_s[of]
    left_s = deadline.deadline_s[of] - state.now_s[of] - state.begin_s[of]
    slack_s = left_s - RESTARTS * slowest_s - step_part_s * left
    drift_s = np.maximum(part_s - step_part_s, 1e-9)
    held = np.maximum(0.0, np.ceil((slack_s - part_s) / drift_s))
    into_s = np.maximum(0.0, slack_s - held * drift_s)
    gains = gains_by_moving(left_s, rest_s=step_part_s * left, slowest_restart_s=slowest_s)
    return np.where(gains, held * part_s + into_s, np.inf)


def _turn_on_demand(
    runs: Runs, state: _State, of: Array, deadline: Deadline, rng: np.random.Generator
) -> None:
    """Take the runs `of` to their next event after they have moved."""
    part_s, begin_s, left = runs.part_s[of], state.begin_s[of], state.left[of]
    rates = np.maximum(deadline.failure_per_s[of], 1e-300)
    stop_s = rng.standard_exponential(len(of)) / rates
    whole_s = begin_s + left * part_s
    ran_s = np.minimum(stop_s, whole_s)
    stopped = stop_s < whole_s
    done = np.floor(np.maximum(0.0, (ran_s - begin_s) / part_s))
    state.left[of] = np.where(stopped, np.maximum(left - done, 1e-12), 0.0)
    state.begin_s[of] = runs.restart_s[of]
    state.now_s[of] += ran_s
    state.on_demand_s[of] += ran_s
    state.bill(runs, of, ran_s, stopped | (whole_s <= ran_s))
    state.stops[of] += stopped


def parts_of(work_s: Array, interval_s: Array) -> Array:
    """Return into how many parts runs are cut; as `restarts.segments_of`, for arrays."""
    return np.maximum(1.0, np.round(work_s / np.minimum(interval_s, MOST_INTERVAL_S)))
