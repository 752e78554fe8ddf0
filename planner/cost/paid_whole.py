"""Machines that are paid for whole terms or capacity blocks, used or not. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...catalog.terms.terms_of_offer import Term
from ...catalog.units import HOURS_PER_DAY, SECONDS_PER_HOUR

UNUSED = "unused commitment"
"""The line of what is paid of a commitment and not used."""
UNUSED_BLOCK = "unused capacity block"
"""The same of a capacity block."""
REST_LINES = (UNUSED, UNUSED_BLOCK)
MICROSECONDS_PER_SECOND = 10**6
"""Time is added and rounded up in whole microseconds: sums of float seconds are off by their last
digits, which would bill a whole increment too much, or a negative one."""
SECONDS_PER_DAY = HOURS_PER_DAY * SECONDS_PER_HOUR


@dataclass(frozen=True, kw_only=True)
class PaidWhole:
    """The lengths that can be had, of which a job pays as many as it takes, one after another."""

    lengths_s: tuple[float, ...]
    """Seconds, the shortest first."""
    lost_s: float = 0.0
    """At the end of each, in which machines are ended already; shorter than all of them."""
    rest: str = UNUSED
    """Name of the line of what is not used."""

    @classmethod
    def of(cls, term: Term) -> PaidWhole:
        """Return what is paid of a commitment or a capacity block."""
        if not term.block_days:
            return cls(lengths_s=(term.seconds,))
        lengths_s = tuple(float(days * SECONDS_PER_DAY) for days in term.block_days)
        return cls(lengths_s=lengths_s, lost_s=term.lost_s, rest=UNUSED_BLOCK)

    def paid_us(self, us: int) -> int:
        """Return what a job of so many microseconds pays: the longest, and what fits the rest."""
        return sum(self._parts_us(us))

    def paid_s(self, seconds: float) -> float:
        """Return the same in seconds."""
        return self.paid_us(round(seconds * MICROSECONDS_PER_SECOND)) / MICROSECONDS_PER_SECOND

    def count(self, seconds: float) -> int:
        """Return how many terms or blocks a job of so many seconds takes, one at least."""
        return max(1, len(self._parts_us(round(seconds * MICROSECONDS_PER_SECOND))))

    def usable_s(self, paid_s: float) -> float:
        """Return for how many seconds machines may run where so many are paid for at most."""
        longest_s = self.lengths_s[-1]
        count = int(paid_s // longest_s)
        rest_s = max((one for one in self.lengths_s if one <= paid_s % longest_s), default=0.0)
        parts = [longest_s] * count + [rest_s] * bool(rest_s)
        return sum(one - self.lost_s for one in parts)

    def _parts_us(self, us: int) -> list[int]:
        lengths_us = [round(one * MICROSECONDS_PER_SECOND) for one in self.lengths_s]
        lost_us = round(self.lost_s * MICROSECONDS_PER_SECOND)
        longest_us = lengths_us[-1]
        parts = [longest_us] * (us // (longest_us - lost_us))
        rest_us = us - len(parts) * (longest_us - lost_us)
        if rest_us:
            parts.append(next(one for one in lengths_us if one - lost_us >= rest_us))
        return parts
