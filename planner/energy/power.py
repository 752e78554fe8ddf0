"""Power of one node in watts: stated for bought hardware, else modelled from TDP.

The constants of the model, their ranges and their sources are in `data/power.toml`.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

BYTES_PER_GB = 1e9

PowerBasis = Literal["stated", "modelled"]


@dataclass(frozen=True, kw_only=True)
class Ranged:
    """A likely value with the ends of its 80 % interval, in one unit."""

    value: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Ranged:
        """Return a value without a range."""
        return cls(value=value, low=value, high=value)

    def times(self, *factors: Ranged) -> Ranged:
        """Return the product of independent quantities: relative deviations add in quadrature.

        >>> round(Ranged(value=2, low=1, high=4).times(Ranged.exactly(3)).high, 6)
        12.0
        """
        parts = (self, *factors)
        value = math.prod(part.value for part in parts)
        if value == 0:
            return Ranged.exactly(0.0)
        down = math.hypot(*(math.log(part.value / part.low) for part in parts))
        up = math.hypot(*(math.log(part.high / part.value) for part in parts))
        return Ranged(value=value, low=value * math.exp(-down), high=value * math.exp(up))

    def plus(self, *others: Ranged) -> Ranged:
        """Return the sum of independent quantities: deviations add in quadrature.

        >>> Ranged(value=2, low=2, high=5).plus(Ranged(value=2, low=1, high=6))
        Ranged(value=4, low=3.0, high=9.0)
        """
        parts = (self, *others)
        value = sum(part.value for part in parts)
        down = math.hypot(*(part.value - part.low for part in parts))
        up = math.hypot(*(part.high - part.value for part in parts))
        return Ranged(value=value, low=value - down, high=value + up)

    def scaled(self, factor: float) -> Ranged:
        """Return the quantity times a number that is exactly known."""
        return Ranged(value=self.value * factor, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """A constant of the model with its range, its unit and where it is from."""

    range: Ranged
    unit: str
    source: str


@dataclass(frozen=True, kw_only=True)
class NodePower:
    """What one node draws at its plugs, watts, before cooling."""

    training_w: Ranged
    """Mean over the steps of a run."""
    idle_w: Ranged
    """Mean before its training starts."""
    basis: PowerBasis
    """Stated by its owner, or modelled from its accelerators' TDP."""


@cache
def coefficients() -> dict[str, Coefficient]:
    """Return the constants of `data/power.toml` by name."""
    text = files("gpuplan.planner").joinpath("data/power.toml").read_text(encoding="utf-8")
    return {
        name: Coefficient(
            range=Ranged(value=row["value"], low=row["low"], high=row["high"]),
            unit=row["unit"],
            source=row["source"],
        )
        for name, row in tomllib.loads(text).items()
    }


def modelled_power(
    *,
    tdp_w: float,
    accelerators: int,
    vcpus: float | None,
    host_memory_bytes: float | None,
    busy_share: float = 1.0,
) -> NodePower:
    """Return the power of a node whose accelerators have a known TDP.

    Accelerators draw one share of TDP while kernels run, another while they wait. The rest of the
    node draws a share of the TDPs, and no less than its processors and memory by themselves.

    Args:
        tdp_w: of one accelerator.
        accelerators: of the node.
        vcpus: hardware threads of the node; None when unknown.
        host_memory_bytes: of the node; None when unknown.
        busy_share: part of the step in which kernels run, 0..1.
    """
    known = {name: one.range for name, one in coefficients().items()}
    tdps_w = tdp_w * accelerators
    busy = known["accelerator_busy"].scaled(busy_share)
    waiting = known["accelerator_waiting"].scaled(1.0 - busy_share)
    host_w = max(
        known["host"].scaled(tdps_w),
        known["vcpu"]
        .scaled(vcpus or 0.0)
        .plus(known["memory"].scaled((host_memory_bytes or 0.0) / BYTES_PER_GB)),
        key=lambda one: one.value,
    )
    host_idle = known["host_idle"].scaled(host_w.value / known["host"].value)
    return NodePower(
        training_w=busy.plus(waiting).scaled(tdps_w).plus(host_w),
        idle_w=known["accelerator_idle"].scaled(tdps_w).plus(host_idle),
        basis="modelled",
    )


def stated_power(*, training_w: float, idle_w: float) -> NodePower:
    """Return the power of a node as its owner states it, without a range."""
    return NodePower(
        training_w=Ranged.exactly(training_w), idle_w=Ranged.exactly(idle_w), basis="stated"
    )
