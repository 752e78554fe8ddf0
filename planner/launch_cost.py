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
    usd_expected: Decimal | None
    usd_worst: Decimal | None
    """The slowest start and the top of the training time's 80 % interval, at the dearest place."""
    hours_expected: float | None
    hours_worst: float | None


def launch_cost(
    training_s: Estimated | None,
    *,
    nodes: int,
    usd_per_hour: Decimal,
    dearest_usd_per_hour: Decimal,
    billing: Provider | None,
) -> LaunchCost:
    """Return the cost of a launch, line by line.

    Args:
        training_s: the run itself, seconds; None where that is not known.
        nodes: how many are rented.
        usd_per_hour: one node, where they are tried first.
        dearest_usd_per_hour: one node, where it costs most of the places that are tried.
        billing: the provider, with its increment and minimum; where the increment is not known
            there is no line of it.
    """
    spans = [(one.name, one.value_s, one.high_s) for one in startups()]
    if training_s is not None:
        spans.append(("training", training_s.value, training_s.high))
    expected_s = sum(value for _, value, _ in spans)
    worst_s = sum(high for *_, high in spans)
    parts = [(name, value) for name, value, _ in spans]
    rounds = billing is not None and billing.billing_increment_s is not None
    if training_s is not None and rounds:
        parts.append(("billing increment", billed_s(expected_s, billing) - expected_s))
    lines = tuple(_line(name, seconds, nodes, usd_per_hour) for name, seconds in parts)
    known = training_s is not None
    worst_billed_s = billed_s(worst_s, billing)
    return LaunchCost(
        lines=lines,
        usd_per_hour=usd_per_hour * nodes,
        usd_expected=sum((line.usd for line in lines), Decimal(0)) if known else None,
        usd_worst=_usd(worst_billed_s, nodes, dearest_usd_per_hour) if known else None,
        hours_expected=billed_s(expected_s, billing) / SECONDS_PER_HOUR if known else None,
        hours_worst=worst_billed_s / SECONDS_PER_HOUR if known else None,
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
