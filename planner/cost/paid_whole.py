"""Machines that are paid for whole terms or capacity blocks, used or not. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from ...catalog.terms.terms_of_offer import Term
from ...catalog.units import HOURS_PER_DAY, SECONDS_PER_HOUR

UNUSED = "unused commitment"
"""The line of what is paid of a commitment and not used."""
UNUSED_BLOCK = "unused capacity block"
"""The same of a capacity block."""
REST_LINES = (UNUSED, UNUSED_BLOCK)
FURTHER = "after the commitment, where it takes longer"
"""The line of what runs that end after the terms they are signed for pay then, on average: where
that is hours on demand, what those cost above the price of the term."""
FURTHER_BLOCK = "further capacity block, where it takes longer"
"""The same of a capacity block, all that is paid of it."""
AFTER_HOURS = "on demand after the commitment"
"""All that these hours cost, where an hour on demand costs no more than one of the term: then they
are on no other line."""
FURTHER_LINES = (FURTHER, AFTER_HOURS, FURTHER_BLOCK)
MICROSECONDS_PER_SECOND = 10**6
"""Time is added and rounded up in whole microseconds: sums of float seconds are off by their last
digits, which would bill a whole increment too much, or a negative one."""
LEAST_CHANCE = 1e-6
"""What is needed more rarely is not counted."""
GROWTH = 1.03
"""Of the times at which the chance of a longer run is summed."""
SECONDS_PER_DAY = HOURS_PER_DAY * SECONDS_PER_HOUR


class Further(NamedTuple):
    """What runs pay, on average, that go on after the terms or blocks that are paid first."""

    paid_us: int
    """In hours of the term: one that costs twice as much counts twice. Microseconds."""
    beyond_us: int
    """For how long they run then by the hour and are on other lines; 0 where they pay further
    lengths."""
    hours_us: int = 0
    """For how long they run then by the hour and are on no other line."""


NO_FURTHER = Further(0, 0)


@dataclass(frozen=True, kw_only=True)
class PaidWhole:
    """The lengths that can be had, of which a job pays as many as it takes, one after another.

    They are paid before anybody knows how long the run takes: those that its expected time fits
    into, or one less where the hours after it cost less on demand than another length. A run that
    ends sooner has paid them all the same. One that has not ended then goes on by the hour; in
    blocks, and where no price of an hour is known, it pays the shortest length that its rest fits
    into.
    """

    lengths_s: tuple[float, ...]
    """Seconds, the shortest first."""
    lost_s: float = 0.0
    """At the end of each, in which machines are ended already; shorter than all of them."""
    rest: str = UNUSED
    """Name of the line of what is not used."""
    further: str = FURTHER
    """Name of the line of what is paid where a run takes longer."""
    hourly_share: Decimal | None = None
    """What an hour after them costs, on demand, over an hour of them; None: further lengths are
    paid."""
    goes_on: bool = True
    """Whether a run that has not ended then pays more; not where a limit ends it."""

    @classmethod
    def of(cls, term: Term, hourly_usd: Decimal | None = None) -> PaidWhole:
        """Return what is paid of a commitment or a capacity block.

        Args:
            term: that is bought.
            hourly_usd: an hour on demand, which a run takes after a commitment; None: not known.
                After a block it has more days of it, for on demand such machines are rarely free.
        """
        if not term.block_days:
            share = None if hourly_usd is None else hourly_usd / term.usd_per_hour
            return cls(lengths_s=(term.seconds,), hourly_share=share)
        lengths_s = tuple(float(days * SECONDS_PER_DAY) for days in term.block_days)
        return cls(
            lengths_s=lengths_s, lost_s=term.lost_s, rest=UNUSED_BLOCK, further=FURTHER_BLOCK
        )

    @property
    def costs_less_after(self) -> bool:
        """Whether an hour on demand, after them, costs no more than one of them."""
        return self.hourly_share is not None and self.hourly_share <= 1

    def paid_us(self, us: int) -> int:
        """Return what a job of so many microseconds pays of them, without hours on demand."""
        return sum(self._parts_us(us))

    def paid_s(self, seconds: float) -> float:
        """Return the same in seconds."""
        return self.paid_us(_us(seconds)) / MICROSECONDS_PER_SECOND

    def billed_us(self, us: int, *, planned_us: int) -> int:
        """Return what is paid by a job that takes `us`, where `planned_us` were expected.

        In hours of the term: one that costs twice as much counts twice.
        """
        paid_us, usable_us = self._planned_us(planned_us)
        more_us = max(0, us - usable_us) if self.goes_on else 0
        if self.hourly_share is None:
            return paid_us + self.paid_us(more_us)
        return paid_us + round(self.hourly_share * more_us)

    def after_planned(
        self, planned_us: int, chance_beyond: Callable[[float], float] | None = None
    ) -> Further:
        """Return what is paid on average beyond what was planned.

        Args:
            planned_us: expected microseconds of the job.
            chance_beyond: seconds → the chance that the job takes longer; None where nothing is
                known of it, and it takes what is expected.
        """
        if not self.goes_on:
            return NO_FURTHER
        _, usable_us = self._planned_us(planned_us)
        if self.hourly_share is not None:
            # The mean of what is beyond is no less than how far the mean is beyond.
            beyond_us = max(0, planned_us - usable_us)
            if chance_beyond is not None:
                usable_s = usable_us / MICROSECONDS_PER_SECOND
                beyond_us = max(beyond_us, _us(_mean_beyond_s(usable_s, chance_beyond)))
            return Further(round(self.hourly_share * beyond_us), beyond_us)
        if chance_beyond is None:
            return NO_FURTHER
        return Further(self._further_lengths_us(usable_us, chance_beyond), 0)

    def _further_lengths_us(self, usable_us: int, chance_beyond: Callable[[float], float]) -> int:
        """Return what is paid on average of more lengths after those that are paid first."""
        usable_s = usable_us / MICROSECONDS_PER_SECOND
        mean_us, paid_us, held_us = 0.0, 0, 0
        chance = chance_beyond(usable_s)
        while chance > LEAST_CHANCE:
            parts = self._parts_us(held_us + 1)
            mean_us += chance * (sum(parts) - paid_us)
            paid_us, held_us = sum(parts), self._held_us(parts)
            chance = chance_beyond(usable_s + held_us / MICROSECONDS_PER_SECOND)
        return round(mean_us)

    def count(self, seconds: float) -> int:
        """Return how many terms or blocks a job of so many seconds pays first, one at least."""
        return max(1, len(self._parts_us(_us(seconds))))

    def usable_s(self, paid_s: float) -> float:
        """Return for how many seconds machines may run where so many are paid for at most."""
        longest_s = self.lengths_s[-1]
        count = int(paid_s // longest_s)
        rest_s = max((one for one in self.lengths_s if one <= paid_s % longest_s), default=0.0)
        parts = [longest_s] * count + [rest_s] * bool(rest_s)
        return sum(one - self.lost_s for one in parts)

    def usable_of_planned_s(self, paid_s: float, *, planned_s: float) -> float:
        """Return the same of a job for which what fits `planned_s` is paid first; 0: not enough."""
        planned_paid_us, usable_us = self._planned_us(_us(planned_s))
        left_s = paid_s - planned_paid_us / MICROSECONDS_PER_SECOND
        if left_s < 0:
            return 0.0
        more_s = 0.0
        if self.goes_on:
            share = self.hourly_share
            more_s = self.usable_s(left_s) if share is None else left_s / float(share)
        return usable_us / MICROSECONDS_PER_SECOND + more_s

    def _planned_us(self, us: int) -> tuple[int, int]:
        """Return what is paid for a job that is expected to take so long, and how long it holds."""
        parts = self._parts_us(us)
        return sum(parts), self._held_us(parts)

    def _held_us(self, parts: list[int]) -> int:
        return sum(parts) - len(parts) * _us(self.lost_s)

    def _parts_us(self, us: int) -> list[int]:
        lengths_us = [_us(one) for one in self.lengths_s]
        lost_us = _us(self.lost_s)
        longest_us = lengths_us[-1]
        parts = [longest_us] * (us // (longest_us - lost_us))
        rest_us = us - len(parts) * (longest_us - lost_us)
        if rest_us:
            length_us = next(one for one in lengths_us if one - lost_us >= rest_us)
            if not parts or not self._costs_less_by_the_hour(rest_us, length_us):
                parts.append(length_us)
        return parts

    def _costs_less_by_the_hour(self, rest_us: int, length_us: int) -> bool:
        """Return whether the rest of a job costs less on demand than one more length."""
        share = self.hourly_share
        return self.goes_on and share is not None and share * rest_us < length_us


def _mean_beyond_s(begin_s: float, chance_beyond: Callable[[float], float]) -> float:
    """Return by how many seconds jobs go beyond `begin_s` on average; 0 for those that do not."""
    at_s, chance, total_s = begin_s, chance_beyond(begin_s), 0.0
    while chance > LEAST_CHANCE:
        next_s = at_s * GROWTH
        next_chance = chance_beyond(next_s)
        total_s += (next_s - at_s) * (chance + next_chance) / 2
        at_s, chance = next_s, next_chance
    return total_s


def _us(seconds: float) -> int:
    return round(seconds * MICROSECONDS_PER_SECOND)
