"""A plan's electricity in words: kWh, CO2e, the grid and the building that they rest on."""

from __future__ import annotations

from collections.abc import Iterator

from ....catalog.text.energy import format_co2e_interval, format_interval, format_kg
from ....catalog.text.quantity import DASH, UNKNOWN
from ....planner.plan.plan import Plan, PlanEnergy

CARBON_HEADING = "kg CO2e"
CARBON_MARK = f"{UNKNOWN} power or grid not known"
BASIS_OF_ENERGY = {
    "stated": "power of the node as stated by its owner",
    "modelled": "modelled from the accelerators' TDP, not measured",
}


def energy_items(plan: Plan) -> list[str]:
    """Return electricity, emissions and PUE of the run, or of a million samples without work."""
    if plan.energy is None:
        return [f"{UNKNOWN} kWh (power not known)"]
    return [*_amounts(plan, plan.energy), _pue(plan.energy)]


def energy_origin(energy: PlanEnergy) -> str:
    """Return what the electricity of a plan rests on."""
    power = format_interval(
        energy.node_power_w_low, energy.node_power_w, energy.node_power_w_high, "W a node"
    )
    grid = "" if energy.grid_source is None else f"; grid {energy.grid_source}"
    return f"{BASIS_OF_ENERGY[energy.basis]}: {power}{grid}"


def carbon_cell(plan: Plan) -> str:
    """Return likely kg CO2e of the run, or of a million samples without work; "?" if unknown."""
    if plan.run is not None:
        return format_kg(plan.run.kg_co2e)
    return format_kg(None if plan.energy is None else plan.energy.kg_co2e_per_million_samples)


def _amounts(plan: Plan, energy: PlanEnergy) -> Iterator[str]:
    run = plan.run
    if run is None:
        yield f"{format_kg(energy.kwh_per_million_samples)} kWh per 1M samples"
        kg = energy.kg_co2e_per_million_samples
        yield _with_grid(
            plan, energy, None if kg is None else f"{format_kg(kg)} kg CO2e per 1M samples"
        )
        return
    low, likely, high = run.energy_kwh_low, run.energy_kwh, run.energy_kwh_high
    if low is not None and likely is not None and high is not None:
        yield format_interval(low, likely, high, "kWh")
    ends = (run.kg_co2e_low, run.kg_co2e, run.kg_co2e_high)
    emitted = None
    if ends[0] is not None and ends[1] is not None and ends[2] is not None:
        emitted = format_co2e_interval(ends[0], ends[1], ends[2])
    yield _with_grid(plan, energy, emitted)


def _with_grid(plan: Plan, energy: PlanEnergy, emitted: str | None) -> str:
    if emitted is None:
        return f"{UNKNOWN} CO2e (grid not known)"
    year = "" if energy.grid_year is None else f" {energy.grid_year.replace('-', DASH)}"
    rate = energy.grid_kg_co2e_per_kwh or 0.0
    return f"{emitted} ({plan.offer.region} grid{year}: {rate:.3g} kg/kWh)"


def _pue(energy: PlanEnergy) -> str:
    if energy.pue_is_assumed:
        return f"PUE {energy.pue_low:g}{DASH}{energy.pue_high:g} assumed"
    return f"PUE {energy.pue:g}"
