"""How long machines take before they train, and how unsure that makes a job."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from statistics import NormalDist, fmean

from .billing import Lengths

PROVISIONING = "provisioning"
"""The name of what a seller does before a machine is there."""
STARTS = 16
"""Equally likely starts of machines over which bills are averaged that are rounded up a lot."""


@dataclass(frozen=True, kw_only=True)
class StartUp:
    """Something that every node does, and is paid for, before it trains."""

    name: str
    value_s: float
    low_s: float
    high_s: float
    """Between the two lie four in five starts."""
    source: str


@cache
def startups(*, is_own: bool = False) -> tuple[StartUp, ...]:
    """Return what every node does before it trains, in that order.

    Args:
        is_own: whether it is a machine of the user's own: it is there, and nobody provisions it.
    """
    text = (files("gpuplan.planner") / "data/startup.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)
    every = (StartUp(name=name, **row) for name, row in rows.items())
    return tuple(one for one in every if not (is_own and one.name == PROVISIONING))


def start_up_s(*, is_own: bool = False) -> float:
    """Return seconds that every node is expected to take, and be paid for, before it trains.

    Args:
        is_own: whether it is a machine of the user's own.
    """
    return sum(one.value_s for one in startups(is_own=is_own))


def ends_with_start_s(
    ran_s: float, low_s: float, high_s: float, *, is_own: bool = False
) -> tuple[float, float]:
    """Return the ends of 80 % of a run and its start, which differ independently of each other.

    Args:
        ran_s: the run itself, expected.
        low_s: the low end of its 80 % interval.
        high_s: the high end.
        is_own: whether its machines are the user's own.
    """
    expected_s = start_up_s(is_own=is_own) + ran_s
    sooner_s, later_s = _of_start_s(is_own=is_own)
    sooner_s, later_s = math.hypot(ran_s - low_s, sooner_s), math.hypot(high_s - ran_s, later_s)
    return expected_s - sooner_s, expected_s + later_s


def run_without_start_s(
    expected_s: float, low_s: float, high_s: float, *, is_own: bool = False
) -> tuple[float, float, float]:
    """Return a run and the ends of its 80 % interval, of what `ends_with_start_s` made of them."""
    ran_s = max(0.0, expected_s - start_up_s(is_own=is_own))
    sooner_s, later_s = _of_start_s(is_own=is_own)
    sooner_s = math.sqrt(max(0.0, (expected_s - low_s) ** 2 - sooner_s**2))
    later_s = math.sqrt(max(0.0, (high_s - expected_s) ** 2 - later_s**2))
    # A run that takes microseconds is lost in the rounding of its start.
    low_s = ran_s - sooner_s if sooner_s < ran_s else ran_s
    return ran_s, low_s, ran_s + later_s


def _of_start_s(*, is_own: bool) -> tuple[float, float]:
    """Return how much sooner and later machines may be ready than expected, at 80 %."""
    every = startups(is_own=is_own)
    return (
        math.hypot(*(one.value_s - one.low_s for one in every)),
        math.hypot(*(one.high_s - one.value_s for one in every)),
    )


def with_all_starts(lengths: Lengths, *, is_own: bool = False) -> Lengths:
    """Return the same with machines that start sooner or later: a mean over equally likely starts.

    Their times are taken to be normal to either side of what is expected.
    """
    sooner_s, later_s = _of_start_s(is_own=is_own)
    normals = [NormalDist().inv_cdf((i + 0.5) / STARTS) for i in range(STARTS)]
    decile = NormalDist().inv_cdf(0.9)
    moved_s = [z * (sooner_s if z < 0 else later_s) / decile for z in normals]

    def chance_within(seconds: float) -> float:
        return fmean(lengths.chance_within(seconds - one) for one in moved_s)

    return replace(lengths, chance_within=chance_within)
