"""What `data/stops.toml` says of failures, interruptions and what they take; each with a source."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from ..plan.parts import Evaluation
from .rates import Rate
from .spread import Spread, typical_rate

KINDS = {"NVIDIA": "nvidia", "Google": "tpu"}


@dataclass(frozen=True, kw_only=True)
class Prior:
    """A value nobody has measured for this run, with the range of 80 %."""

    value: float
    low: float
    high: float
    source: str


@dataclass(frozen=True, kw_only=True)
class RatePrior:
    """How often something stops a run, with the range of 80 %."""

    value: Rate
    low: Rate
    high: Rate
    source: str

    def typical(self, again_s: float) -> Rate:
        """Return the rate at which stops cost what they cost on average (`spread.typical_rate`)."""
        ends = (self.value.per_s, self.low.per_s, self.high.per_s)
        return Rate(typical_rate(*ends, again_s))

    def __add__(self, other: RatePrior) -> RatePrior:
        """Return the rate of either of two independent things; both ranges end together."""
        return RatePrior(
            value=self.value + other.value,
            low=self.low + other.low,
            high=self.high + other.high,
            source=f"{self.source}; {other.source}",
        )


def beside_steps(evaluation: Evaluation | None = None) -> Prior:
    """Return what evaluation and slow steps take, of the time of the steps.

    Args:
        evaluation: as it is counted; None: it is assumed with the slow steps. The ends of both
            ranges come together.
    """
    if evaluation is None:
        return prior("beside_steps")
    return _with_slow_steps(evaluation.share, evaluation.share_low, evaluation.share_high)


def beside_steps_spread(evaluation: Evaluation | None = None) -> float:
    """Return how far 80 % of runs are apart by evaluation and slow steps, share of a likely run."""
    beside = beside_steps(evaluation)
    return (beside.high - beside.low) / (1 + beside.value)


def beside_steps_mean(evaluation: Evaluation | None = None) -> float:
    """Return training with evaluation and slow steps over its steps alone: the mean of the range.

    Not its likely value: an expected time is the mean over all that a range leaves open, as the
    rate of stops is counted (`spread.typical_rate`).
    """
    beside = beside_steps(evaluation)
    return _mean(1 + beside.value, 1 + beside.low, 1 + beside.high)


@lru_cache(4096)
def _mean(middle: float, low: float, high: float) -> float:
    return middle * Spread.of(middle, low, high).mean


@lru_cache(4096)
def _with_slow_steps(share: float, low: float, high: float) -> Prior:
    """Return what evaluations of these shares and slow steps take together."""
    slow = prior("slow_steps")
    return Prior(
        value=slow.value + share,
        low=slow.low + low,
        high=slow.high + high,
        source=f"{slow.source}; {source_of('evaluation')}",
    )


@cache
def prior(name: str) -> Prior:
    """Return a prior by its name in the table.

    Raises:
        KeyError: there is none of that name.
    """
    return Prior(**_table()[name])


@cache
def stated(section: str, name: str) -> float:
    """Return a plain number of the table, such as a provider's notice in seconds.

    Raises:
        KeyError: it is not stated.
    """
    return float(_table()[section][name])


@cache
def source_of(section: str) -> str:
    """Return where the numbers of a section come from."""
    return str(_table()[section]["source"])


@cache
def failure_rate(vendor: str, count: int) -> RatePrior:
    """Return how often failures stop a job on `count` accelerators of a vendor.

    Per accelerator it is constant up to the small and from the large size of the table, and falls
    with the logarithm of the size between them.
    """
    table = _table()[KINDS.get(vendor, "other")]
    small, large = table["small_accelerators"], table["large_accelerators"]
    share = min(1.0, max(0.0, math.log(count / small) / math.log(large / small)))

    def rate(end: str) -> Rate:
        of_small, of_large = table["small"][end], table["large"][end]
        return Rate.hourly(of_small + share * (of_large - of_small)) * count

    return RatePrior(
        value=rate("value"), low=rate("low"), high=rate("high"), source=table["source"]
    )


@cache
def _table() -> dict[str, Any]:
    text = (files("gpuplan.planner") / "data/stops.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
