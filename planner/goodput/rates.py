"""How often something stops a run: each source's own unit, and the one rate they become.

The sources count in units that cannot be mixed: a share of machines a month (AWS Spot Advisor), a
chance an hour (Azure), a share of the machines that stopped (Google Cloud). Each is a type of its
own here; only those that say how often become a `Rate`, and only rates add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...catalog.units import HOURS_PER_MONTH, SECONDS_PER_HOUR


@dataclass(frozen=True, order=True)
class Rate:
    """Events per second of a Poisson process; independent ones add up."""

    per_s: float

    def __post_init__(self) -> None:
        """Raise ValueError for what is no rate."""
        if not (math.isfinite(self.per_s) and self.per_s >= 0):
            raise ValueError(f"{self.per_s!r} per second is no rate: a number from 0 is one")

    @classmethod
    def hourly(cls, events_per_hour: float) -> Rate:
        """Return the rate of so many events an hour."""
        return cls(events_per_hour / SECONDS_PER_HOUR)

    @property
    def per_hour(self) -> float:
        """Events per hour."""
        return self.per_s * SECONDS_PER_HOUR

    def __add__(self, other: Rate) -> Rate:
        """Return the rate of either of two independent events."""
        return Rate(self.per_s + other.per_s)

    def __mul__(self, count: float) -> Rate:
        """Return the rate of the first of `count` independent events of this kind."""
        return Rate(self.per_s * count)


@dataclass(frozen=True)
class MonthlyShare:
    """Share of machines that are taken away within a month, 0 to 1 (AWS Spot Advisor).

    >>> round(MonthlyShare(0.2).rate().per_hour, 6)
    0.000306
    """

    share: float

    def rate(self) -> Rate:
        """Return the rate at which as many machines are lost in a month."""
        return Rate.hourly(_events(self.share) / HOURS_PER_MONTH)


@dataclass(frozen=True)
class HourlyChance:
    """Chance that a machine is taken away within an hour, 0 to 1 (Azure's eviction rate)."""

    chance: float

    def rate(self) -> Rate:
        """Return the rate at which as many machines are lost in an hour."""
        return Rate.hourly(_events(self.chance))


@dataclass(frozen=True)
class StoppedShare:
    """Share of the stopped machines that were taken away (Google Cloud's preemption rate).

    It says why machines stopped, not how often: it has no rate.
    """

    share: float


@dataclass(frozen=True)
class MeanUptime:
    """Mean time until a machine is taken away, seconds (Google Cloud's estimated uptime)."""

    uptime_s: float

    def rate(self) -> Rate:
        """Return the rate of machines that live so long on average."""
        return Rate(1 / self.uptime_s)


def _events(chance: float) -> float:
    """Return the events of a Poisson process of which at least one happens with this chance."""
    if not 0 <= chance < 1:
        raise ValueError(f"{chance!r} is no chance: one from 0 and below 1 is")
    return -math.log1p(-chance)
