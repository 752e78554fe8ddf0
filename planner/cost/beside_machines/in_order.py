"""What of the lines beside machines counts in the order of plans.

What is surely paid counts: disks, the data set, the idle tail, and of a spot plan the controller
and the checkpoints in its bucket. Many sellers state no such price, so that plans are ordered as if
one that is not known were the highest that any seller states: none comes first by stating none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

from ....catalog.units import SECONDS_PER_HOUR
from ...plan.parts import DataLine
from ...plan.question import Work
from ..tax import TAX, tax_rate
from .beside import AROUND_LINES, DEAREST, IDLE_TAIL, Machines, beside_lines, billed_tail_s
from .dataset_cost import dataset_lines

MANY_HOURS = 1e6
"""Lines are rounded to the cent: over so many hours that says nothing."""


@dataclass(frozen=True)
class BesideUsd:
    """What is surely paid beside machines, before the length of a job is known, dollars."""

    at_once_usd: float = 0.0
    usd_per_hour: float = 0.0
    tail: BilledTail | None = None
    """The idle tail where the least that is billed may hold it; else it is paid at once."""

    def of(self, hours: float) -> float:
        """Return the dollars of a job of so many hours."""
        tail_usd = 0.0 if self.tail is None else self.tail.of(hours)
        return self.at_once_usd + self.usd_per_hour * hours + tail_usd

    def __add__(self, other: BesideUsd) -> BesideUsd:
        """Return both together, of which one at most has a tail."""
        return BesideUsd(
            self.at_once_usd + other.at_once_usd,
            self.usd_per_hour + other.usd_per_hour,
            self.tail or other.tail,
        )

    def __mul__(self, factor: float) -> BesideUsd:
        """Return so much of it, such as 1 + a tax."""
        tail = self.tail and replace(self.tail, usd_per_s=self.tail.usd_per_s * factor)
        return BesideUsd(self.at_once_usd * factor, self.usd_per_hour * factor, tail)


@dataclass(frozen=True)
class BilledTail:
    """An idle tail of which only that is billed which is beyond the least that is."""

    minimum_s: float
    usd_per_s: float

    @property
    def most_s(self) -> float:
        """All of it, of a long job."""
        return billed_tail_s(self.minimum_s, self.minimum_s)

    def billed_s(self, ran_s: float) -> float:
        """Return the seconds of it that are billed after machines ran for so long."""
        return billed_tail_s(ran_s, self.minimum_s)

    def of(self, hours: float) -> float:
        """Return the dollars of it after a job of so many hours."""
        return self.usd_per_s * self.billed_s(hours * SECONDS_PER_HOUR)


NOTHING = BesideUsd()


@lru_cache(maxsize=100_000)
def usd_beside(machines: Machines, usd_per_hour: Decimal | None) -> BesideUsd:
    """Return what is surely paid beside machines, without a data set; a search asks often.

    Args:
        machines: where, how many, how they are bought.
        usd_per_hour: one node; None where the price is not known.
    """
    if not machines.minimum_s or machines.is_owned or machines.is_paid_whole:
        return usd_of_lines(
            lambda hours: beside_lines(machines, hours=hours, usd_per_hour=usd_per_hour)
        )

    def without_tail(hours: float) -> Iterator[DataLine]:
        lines = beside_lines(machines, hours=hours, usd_per_hour=usd_per_hour)
        return (line for line in lines if line.name != IDLE_TAIL)

    usd_per_s = machines.nodes * float(usd_per_hour or 0) / SECONDS_PER_HOUR
    return usd_of_lines(without_tail) + BesideUsd(tail=BilledTail(machines.minimum_s, usd_per_s))


def usd_of_dataset(work: Work, provider: str, region: str, *, is_owned: bool = False) -> BesideUsd:
    """Return what a data set counts in a place, before the length of the job is known."""
    if work.dataset_bytes is None:
        return NOTHING
    return usd_of_lines(
        lambda hours: dataset_lines(work, provider, region, hours=hours, is_owned=is_owned)
    )


def usd_of_lines(lines_of: Callable[[float], Iterable[DataLine]]) -> BesideUsd:
    """Return what lines count in the order of plans, before the length of the job is known.

    Args:
        lines_of: hours of the job → its lines.
    """
    at_once_usd, in_all_usd = (ranked_usd(lines_of(hours)) for hours in (0.0, MANY_HOURS))
    return BesideUsd(at_once_usd, (in_all_usd - at_once_usd) / MANY_HOURS)


def ranked_usd(lines: Iterable[DataLine], tax_percent: Decimal | float | None = None) -> float:
    """Return what lines count in the order of plans, with tax, dollars: what is surely paid."""
    net = sum(_counted_usd(one) for one in lines if one.is_certain and one.name != TAX)
    return net * float(1 + tax_rate(Decimal(str(tax_percent or 0))))


def _counted_usd(line: DataLine) -> float:
    if line.usd is not None:
        return float(line.usd)
    if line.name in AROUND_LINES:
        return 0.0  # Of machines without a price, whose own cost is infinite in the order.
    return float(Decimal(line.quantity) * DEAREST[line.name]())
