"""What a launch costs beside its training: the start of the machines, and how providers bill."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files

from ..catalog.types import Provider
from ..catalog.units import SECONDS_PER_HOUR
from .cost import CENT
from .plan import CostLine, Estimated

UNIT = "instance-hour"


@dataclass(frozen=True, kw_only=True)
class StartUp:
    """Something that every node does, and is paid for, before it trains."""

    name: str
    value_s: float
    high_s: float
    source: str


@dataclass(frozen=True, kw_only=True)
class LaunchCost:
    """What a launch costs; dollars are None where nobody knows how long it trains."""

    lines: tuple[CostLine, ...]
    """Add up to `usd_expected`; without a known training time, only the start."""
    usd_per_hour: Decimal
    """All nodes, where they are tried first."""
    usd_expected: Decimal | None = None
    usd_low: Decimal | None = None
    usd_high: Decimal | None = None
    """With the training time at the ends of its 80 % interval."""
    usd_worst: Decimal | None = None
    """The slowest start, the top of that interval and the idle end, at the dearest place."""
    hours_expected: float | None = None
    hours_worst: float | None = None


def launch_cost(
    training_s: Estimated | None,
    *,
    nodes: int,
    usd_per_hour: Decimal,
    dearest_usd_per_hour: Decimal,
    billing: Provider | None,
    idle_s: float = 0.0,
) -> LaunchCost:
    """Return the cost of a launch, line by line.

    Args:
        training_s: the run itself, seconds; None where that is not known.
        nodes: how many are rented.
        usd_per_hour: one node, where they are tried first.
        dearest_usd_per_hour: one node, where it costs most of the places that are tried.
        billing: the provider, with its increment and minimum; where the increment is not known
            there is no line of it.
        idle_s: how long the machines stay after the job where no command gives them back at once.
    """
    parts = [(one.name, one.value_s) for one in startups()]
    start_s = sum(seconds for _, seconds in parts)
    rate = usd_per_hour * nodes
    if training_s is None:
        lines = tuple(_line(name, seconds, nodes, usd_per_hour) for name, seconds in parts)
        return LaunchCost(lines=lines, usd_per_hour=rate)
    parts.append(("training", training_s.value))
    expected_s = billed_s(start_s + training_s.value, billing)
    if billing is not None and billing.billing_increment_s is not None:
        parts.append(("billing increment", expected_s - start_s - training_s.value))
    lines = tuple(_line(name, seconds, nodes, usd_per_hour) for name, seconds in parts)
    slowest_start_s = sum(one.high_s for one in startups())
    worst_s = billed_s(slowest_start_s + training_s.high + idle_s, billing)
    return LaunchCost(
        lines=lines,
        usd_per_hour=rate,
        usd_expected=sum((line.usd for line in lines), Decimal(0)),
        usd_low=_usd(billed_s(start_s + training_s.low, billing), nodes, usd_per_hour),
        usd_high=_usd(billed_s(start_s + training_s.high, billing), nodes, usd_per_hour),
        usd_worst=_usd(worst_s, nodes, dearest_usd_per_hour),
        hours_expected=expected_s / SECONDS_PER_HOUR,
        hours_worst=worst_s / SECONDS_PER_HOUR,
    )


def billed_s(seconds: float, billing: Provider | None) -> float:
    """Return how many seconds of a node a provider bills for so many that it ran."""
    return billed_seconds(
        seconds,
        increment_s=None if billing is None else billing.billing_increment_s,
        minimum_s=None if billing is None else billing.minimum_s,
    )


def billed_seconds(seconds: float, *, increment_s: float | None, minimum_s: float | None) -> float:
    """Return seconds rounded up to what is billed; None where a provider states no such thing."""
    whole_s = math.ceil(seconds / increment_s) * increment_s if increment_s else seconds
    return max(float(whole_s), float(minimum_s or 0))


@cache
def startups() -> tuple[StartUp, ...]:
    """Return what every node does before it trains, in that order."""
    text = (files("gpuplan.planner") / "data/startup.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)
    return tuple(StartUp(name=name, **row) for name, row in rows.items())


def _line(name: str, seconds: float, nodes: int, usd_per_hour: Decimal) -> CostLine:
    return CostLine(
        name=name,
        quantity=nodes * seconds / SECONDS_PER_HOUR,
        unit=UNIT,
        unit_usd=usd_per_hour,
        usd=_usd(seconds, nodes, usd_per_hour),
    )


def _usd(seconds: float, nodes: int, usd_per_hour: Decimal) -> Decimal:
    hours = Decimal(str(nodes * seconds)) / Decimal(SECONDS_PER_HOUR)
    return (hours * usd_per_hour).quantize(CENT)
