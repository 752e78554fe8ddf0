"""Machines of one price: time of them → dollars, and cost lines that add up to the cent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

from ...catalog.units import SECONDS_PER_HOUR
from ..plan.plan import CostLine
from .paid_whole import MICROSECONDS_PER_SECOND
from .run_cost import CENT, UNIT

Part = tuple[str, int]
"""The name of a cost line, and for how many whole microseconds a node is billed on it."""


@dataclass(frozen=True, kw_only=True)
class Rented:
    """Nodes that run together, at one price."""

    nodes: int
    usd_per_hour: Decimal
    """One node."""

    @property
    def all_usd_per_hour(self) -> Decimal:
        """All nodes."""
        return self.usd_per_hour * self.nodes

    def usd(self, us: int) -> Decimal:
        """Return what so many microseconds of all nodes cost, US dollars rounded to the cent."""
        return self._exact_usd(us).quantize(CENT)

    def lines(self, parts: Sequence[Part]) -> tuple[CostLine, ...]:
        """Return one line for each part, in cents that add up to their sum rounded once.

        Lines rounded one by one would add up to cents more or less than the sum, which of a small
        job may be beyond its interval. So every line is rounded down, and the cents that are then
        missing go to those that lost most (the method of the largest remainder): none is off by a
        cent.
        """
        exact = [self._exact_usd(us) for _, us in parts]
        cents = [usd.quantize(CENT, rounding=ROUND_FLOOR) for usd in exact]
        total = self.usd(sum(us for _, us in parts))
        missing = int((total - sum(cents, Decimal(0))) / CENT)
        by_loss = sorted(range(len(parts)), key=lambda i: cents[i] - exact[i])
        for i in by_loss[:missing]:
            cents[i] += CENT
        return tuple(
            CostLine(
                name=name,
                quantity=self.nodes * hours_of(us),
                unit=UNIT,
                unit_usd=self.usd_per_hour,
                usd=usd,
            )
            for (name, us), usd in zip(parts, cents, strict=True)
        )

    def _exact_usd(self, us: int) -> Decimal:
        return _exact_hours(self.nodes * us) * self.usd_per_hour


def hours_of(us: int) -> float:
    """Return microseconds as hours."""
    return us / (MICROSECONDS_PER_SECOND * SECONDS_PER_HOUR)


def _exact_hours(us: int) -> Decimal:
    return Decimal(us) / Decimal(MICROSECONDS_PER_SECOND * SECONDS_PER_HOUR)
