"""What the electricity of a plan rests on: power of a node, building, grid."""

from __future__ import annotations

from typing import Literal

from ...catalog.frozen import FrozenModel

EnergyBasis = Literal["stated", "modelled"]


class PlanEnergy(FrozenModel):
    """What the electricity of a plan rests on: power of a node, building, grid."""

    basis: EnergyBasis
    """Whether the power is stated by the owner of the machine or modelled from TDP."""
    node_power_w: float
    """Watts that one node draws on average while it trains, before cooling."""
    node_power_w_low: float
    """Low end of the 80 % interval, watts."""
    node_power_w_high: float
    """High end of the 80 % interval, watts."""
    pue: float
    """Power usage effectiveness: power of the building over that of its machines."""
    pue_low: float
    """Low end of the 80 % interval."""
    pue_high: float
    """High end of the 80 % interval."""
    pue_is_assumed: bool
    """Whether nobody states it for this seller, and it is that of data centres at large."""
    grid_kg_co2e_per_kwh: float | None
    """Kilograms of CO2 equivalent that the region's grid emits for a kilowatt-hour, mean of a year;
    None where it is not known."""
    grid_year: str | None
    """The year or years of that mean."""
    grid_source: str | None
    """Where it is from."""
    kwh_per_million_samples: float
    """Kilowatt-hours for training on a million samples, without the start of the machines."""
    kg_co2e_per_million_samples: float | None
    """Kilograms of CO2 equivalent of that: the operational part, E x I per R, of the Software
    Carbon Intensity (Green Software Foundation); what making the hardware emitted is not in it."""
    kg_co2e_per_million_tokens: float | None
    """The same for a million tokens; None for a model without tokens."""
