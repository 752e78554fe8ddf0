"""For how long the machines of a launch are billed: on average, at the ends, and at worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ...catalog.types import Provider
from ..goodput.expected_run import ExpectedRun, mean_training_s
from ..plan.plan import Estimated
from .billing import Lengths, bill_ends_us, billed_us, mean_billed_us, more_bills_ends_us
from .paid_whole import MICROSECONDS_PER_SECOND, NO_FURTHER, REST_LINES, Further, PaidWhole
from .rented import Part
from .start_up import ends_with_start_s, startups, with_all_starts


@dataclass(frozen=True, kw_only=True)
class LaunchTime:
    """The start and the training of a launch, before they are rounded up to a bill."""

    start: tuple[Part, ...]
    training_s: Estimated
    run: ExpectedRun | None
    """The training with its checkpoints and stops; None where nothing is known of them."""
    is_own: bool = False
    """Whether its machines are the user's own."""

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """All of it by cost line, as it is expected."""
        return (*self.start, *_training_parts(self.training_s, self.run))

    @cached_property
    def start_us(self) -> int:
        """The start alone."""
        return sum(us for _, us in self.start)

    @cached_property
    def expected_us(self) -> int:
        """Start and training together."""
        return sum(us for _, us in self.parts)

    @cached_property
    def lengths(self) -> Lengths | None:
        """How long machines are billed in other cases than the expected one; None: not known."""
        return None if self.run is None else _lengths(self.run, self.start_us)

    @property
    def range_s(self) -> tuple[float, float]:
        """The ends of 80 % of what is billed between the first step and the last.

        Waits for machines are not billed; their share of a slow run is taken as that of the mean.
        """
        if self.run is None:
            return self.training_s.low, self.training_s.high
        share = self.run.billed_s / self.run.elapsed_s
        low_s, high_s = self.run.ends_s
        return share * low_s, share * high_s

    def ends_us(self, idle_s: float) -> tuple[int, int, int]:
        """Return how long a node runs at the low end, at the high one and at worst, unrounded.

        Args:
            idle_s: how long it idles at its end at worst, where its start is the slowest too.
        """
        ran_s = (self.expected_us - self.start_us) / MICROSECONDS_PER_SECOND
        low_s, high_s = ends_with_start_s(ran_s, *self.range_s, is_own=self.is_own)
        slowest_start_us = sum(whole_us(one.high_s) for one in startups(is_own=self.is_own))
        return (
            # Parts are rounded one by one, so that their sum may be a microsecond beyond an end.
            min(whole_us(low_s), self.expected_us),
            max(whole_us(high_s), self.expected_us),
            slowest_start_us + whole_us(self.range_s[1]) + whole_us(idle_s),
        )


def expected_start(*, is_own: bool = False) -> tuple[Part, ...]:
    """Return the parts of the start of machines, as they are expected.

    Args:
        is_own: whether they are the user's own.
    """
    return tuple((one.name, whole_us(one.value_s)) for one in startups(is_own=is_own))


def _training_parts(training_s: Estimated, run: ExpectedRun | None) -> list[Part]:
    """Return what is billed between the first step and the last, in whole microseconds."""
    if run is None:
        return [("training", whole_us(mean_training_s(training_s)))]
    return [
        ("training", whole_us(run.training_s)),
        *_beside_parts(run),
        ("checkpoints", whole_us(run.checkpoints_s)),
        ("failures and restarts", whole_us(run.stopped_s)),
    ]


def _beside_parts(run: ExpectedRun) -> list[Part]:
    """Return evaluation by itself, where it is known."""
    if run.evaluation_s is None:
        return [("evaluation and slow steps", whole_us(run.beside_s))]
    return [
        ("evaluation", whole_us(run.evaluation_s)),
        ("slow steps", whole_us(run.beside_s) - whole_us(run.evaluation_s)),
    ]


def _lengths(run: ExpectedRun, start_us: int) -> Lengths:
    """Return how long the machines of a run are billed; of waits the mean share is not."""
    share, start_s = run.billed_s / run.elapsed_s, start_us / MICROSECONDS_PER_SECOND
    return Lengths(
        spread_s=share * (run.high_s - run.low_s),
        stops=run.stops,
        chance_within=lambda seconds: run.chance_within((seconds - start_s) / share),
    )


class MeanBill(NamedTuple):
    """What a node of a launch is billed, as the mean of all launches, in microseconds."""

    parts: tuple[Part, ...]
    """By cost line, in hours at the price of the machines that are tried first."""
    further: Further
    """What is paid after terms or blocks."""
    hourly_us: int
    """What is billed by the hour, or would be where terms or blocks are paid whole."""

    @property
    def paid_us(self) -> int:
        """What is paid in all; an hour that costs twice as much counts twice."""
        return sum(us for _, us in self.parts) + self.further.paid_us - self.further.beyond_us


def mean_bill(time: LaunchTime, billing: Provider | None, paid_whole: PaidWhole | None) -> MeanBill:
    """Return what a node of a launch is billed on average.

    Args:
        time: its start and training.
        billing: the provider; without a known increment there is no part for it.
        paid_whole: terms or blocks of the node; None: what is used is paid.
    """
    hourly_us = mean_billed_us(time.expected_us, billing, time.lengths)
    parts = time.parts
    if billing is not None and billing.billing_increment_s is not None:
        parts = (*parts, ("billing increment", hourly_us - time.expected_us))
    if paid_whole is None:
        return MeanBill(parts, NO_FURTHER, hourly_us)
    further = _further(hourly_us, time, paid_whole)
    # Hours after a term are among those that are expected: so much more of it is not used.
    unused_us = paid_whole.paid_us(hourly_us) + further.beyond_us - hourly_us
    parts = (*parts, (paid_whole.rest, unused_us))
    if paid_whole.costs_less_after:
        parts = _without_end(parts, further.beyond_us)
        further = further._replace(beyond_us=0, hours_us=further.beyond_us)
    return MeanBill(parts, further, hourly_us)


def _further(hourly_us: int, time: LaunchTime, paid_whole: PaidWhole) -> Further:
    """Return what is paid on average after the terms or blocks."""
    run = time.run
    if run is None:
        return paid_whole.after_planned(hourly_us)
    start_s = time.start_us / MICROSECONDS_PER_SECOND
    return paid_whole.after_planned(
        hourly_us, lambda seconds: 1 - run.chance_within(seconds - start_s)
    )


def _without_end(parts: Sequence[Part], end_us: int) -> tuple[Part, ...]:
    """Return parts without so much of them: of the longest first, which is the training."""
    left = dict(parts)
    for name in sorted(left, key=left.__getitem__, reverse=True):
        if name not in REST_LINES:
            taken_us = min(left[name], end_us)
            left[name] -= taken_us
            end_us -= taken_us
    return tuple(left.items())


class BillEnds(NamedTuple):
    """For how long a node is billed at the ends of 80 % of the launches, and at worst."""

    low_us: int
    high_us: int
    worst_us: int
    run_low_us: int
    """The first two where machines start as expected."""
    run_high_us: int

    def paid_whole(self, how: PaidWhole, planned_us: int) -> BillEnds:
        """Return the same where terms or blocks are paid, used or not."""
        return BillEnds(*(how.billed_us(us, planned_us=planned_us) for us in self))

    def around(self, mean_us: int) -> BillEnds:
        """Return the same with the mean of all between their ends."""
        return BillEnds(
            low_us=min(self.low_us, mean_us),
            high_us=max(self.high_us, mean_us),
            worst_us=max(self.worst_us, mean_us),
            run_low_us=min(self.run_low_us, mean_us),
            run_high_us=max(self.run_high_us, mean_us),
        )


def bill_ends(time: LaunchTime, *, billing: Provider | None, idle_s: float) -> BillEnds:
    """Return what a seller bills of a launch by the hour, rounded up as it does.

    Args:
        time: its start and training.
        billing: the provider.
        idle_s: idle time after the job.
    """
    low_us, high_us, worst_us = time.ends_us(idle_s)
    run_low_us, run_high_us = (time.start_us + whole_us(end_s) for end_s in time.range_s)
    lengths = time.lengths
    all_starts = None if lengths is None else with_all_starts(lengths, is_own=time.is_own)
    _, most_us = more_bills_ends_us(billing, time.lengths)
    return BillEnds(
        *bill_ends_us(low_us, high_us, billing, all_starts),
        billed_us(worst_us, billing) + most_us,
        *bill_ends_us(run_low_us, run_high_us, billing, time.lengths),
    )


def whole_us(seconds: float) -> int:
    """Return seconds in whole microseconds."""
    return round(seconds * MICROSECONDS_PER_SECOND)
