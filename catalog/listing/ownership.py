"""What an hour on bought hardware costs, and when buying beats renting. Pure arithmetic."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

from pydantic import Field

from ..types import CatalogueRow
from ..units import HOURS_PER_MONTH, MONTHS_PER_YEAR

WATTS_PER_KILOWATT = 1000


class Ownership(CatalogueRow):
    """One bought node: what it cost, how long it serves, and what running it costs."""

    capex_usd: Decimal = Field(gt=0, allow_inf_nan=False)
    lifetime_years: Decimal = Field(gt=0, le=50, allow_inf_nan=False)
    residual_usd: Decimal = Field(default=Decimal(0), ge=0, allow_inf_nan=False)
    """What it still sells for at the end of its life."""
    power_w: Decimal = Field(gt=0, allow_inf_nan=False)
    """Drawn by the whole node at work, before cooling."""
    idle_power_w: Decimal = Field(default=Decimal(0), ge=0, allow_inf_nan=False)
    usd_per_kwh: Decimal = Field(ge=0, allow_inf_nan=False)
    pue: Decimal = Field(ge=1, le=5, allow_inf_nan=False)
    """Power usage effectiveness: what the building draws over what the machines draw."""
    utilisation: Decimal = Field(gt=0, le=1, allow_inf_nan=False)
    """Share of all hours in which it does useful work; the cost is spread over these alone."""
    hosting_usd_per_month: Decimal = Field(default=Decimal(0), ge=0, allow_inf_nan=False)
    staff_usd_per_month: Decimal = Field(default=Decimal(0), ge=0, allow_inf_nan=False)


def lifetime_months(owned: Ownership) -> Decimal:
    """Return the life of the node in months."""
    return owned.lifetime_years * MONTHS_PER_YEAR


def used_hours_per_month(owned: Ownership) -> Decimal:
    """Return the hours of useful work a month: utilisation × 730 h."""
    return owned.utilisation * HOURS_PER_MONTH


def capital_usd_per_month(owned: Ownership) -> Decimal:
    """Return straight-line depreciation, $/month: (capex − residual) ÷ lifetime in months."""
    return (owned.capex_usd - owned.residual_usd) / lifetime_months(owned)


def energy_usd_per_month(owned: Ownership) -> Decimal:
    """Return the electricity bill, $/month.

    730 h × (u × power + (1 − u) × idle power) ÷ 1000 × PUE × $/kWh, u being the utilisation.
    """
    idle = 1 - owned.utilisation
    mean_w = owned.utilisation * owned.power_w + idle * owned.idle_power_w
    kwh = HOURS_PER_MONTH * mean_w / WATTS_PER_KILOWATT
    return kwh * owned.pue * owned.usd_per_kwh


def running_usd_per_month(owned: Ownership) -> Decimal:
    """Return what is paid month by month, $: energy + hosting + staff."""
    return energy_usd_per_month(owned) + owned.hosting_usd_per_month + owned.staff_usd_per_month


def usd_per_used_hour(owned: Ownership) -> Decimal:
    """Return the cost of one hour of useful work on one node, $/h.

    (capital + running cost, $/month) ÷ (utilisation × 730 h).
    """
    monthly = capital_usd_per_month(owned) + running_usd_per_month(owned)
    return monthly / used_hours_per_month(owned)


def break_even_month(owned: Ownership, *, rental_usd_per_hour: Decimal) -> int | None:
    """Return the first month in which buying has cost no more than renting the same hours.

    The smallest whole n with  capex + n × running ≤ n × rental × used hours; None if that is
    beyond the lifetime. What the node still sells for is left out: it is money of later.
    """
    saved_per_month = rental_usd_per_hour * used_hours_per_month(owned) - running_usd_per_month(
        owned
    )
    if saved_per_month <= 0:
        return None
    month = (owned.capex_usd / saved_per_month).to_integral_value(ROUND_CEILING)
    return int(month) if month <= lifetime_months(owned) else None
