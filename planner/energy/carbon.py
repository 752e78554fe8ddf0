"""From watts to kilowatt-hours of a building, and to kg CO2e of its region's grid."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...catalog.types import Region
from ...catalog.units import SECONDS_PER_HOUR
from .power import NodePower, Ranged, coefficients

WATTS_PER_KILOWATT = 1000.0
_GRID_SOURCE = re.compile(r"grid (?P<year>\d{4}(?:-\d{4})?): (?P<source>.+)$")


@dataclass(frozen=True, kw_only=True)
class Pue:
    """Power usage effectiveness: what a building draws over what its machines draw."""

    range: Ranged
    is_assumed: bool
    """Whether nobody states it for this seller, and the range is that of data centres at large."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The electricity of a region, location-based: what its grid emits, whatever was bought."""

    kg_co2e_per_kwh: float
    year: str | None
    """Of the figure: "2023", or "2021-2023"."""
    source: str | None


def pue_of(stated: float | None) -> Pue:
    """Return a seller's own figure, or the range of data centres at large where it states none."""
    if stated is None:
        return Pue(range=coefficients()["pue"].range, is_assumed=True)
    return Pue(range=Ranged.exactly(stated), is_assumed=False)


def grid_of(region: Region | None) -> Grid | None:
    """Return what a region's grid emits; None where that is not known.

    The year and the source are read from the region's own source, which names them last.
    """
    if region is None or region.grid_kg_co2e_per_kwh is None:
        return None
    named = _GRID_SOURCE.search(region.source or "")
    return Grid(
        kg_co2e_per_kwh=region.grid_kg_co2e_per_kwh,
        year=named["year"] if named else None,
        source=named["source"] if named else region.source,
    )


def energy_kwh(
    power: NodePower, *, nodes: int, training_s: Ranged, idle_s: float = 0.0, pue: Pue
) -> Ranged:
    """Return the electricity of a run with its 80 % interval, cooling included.

    Args:
        power: of one node.
        nodes: how many run.
        training_s: seconds of training, with its interval.
        idle_s: seconds of every node before it trains.
        pue: of the building.
    """
    per_kwh = nodes / (WATTS_PER_KILOWATT * SECONDS_PER_HOUR)
    drawn = power.training_w.times(training_s).plus(power.idle_w.scaled(idle_s))
    return drawn.times(pue.range).scaled(per_kwh)


def kg_co2e(energy: Ranged, grid: Grid | None) -> Ranged | None:
    """Return what the electricity emits; None where the grid is not known.

    The interval is that of the electricity alone: a year's mean says nothing of single hours.
    """
    return None if grid is None else energy.scaled(grid.kg_co2e_per_kwh)


def per_million(kg: float | None, amount: float | None) -> float | None:
    """Return kg CO2e per million tokens or samples; None where either is not known.

    The operational part of the Software Carbon Intensity, E × I per R (Green Software Foundation,
    SCI 1.1). Its M, what making the hardware emitted, is not known and not in it.

    >>> per_million(2.0, 4e6)
    0.5
    """
    return None if kg is None or not amount else kg / amount * 1e6
