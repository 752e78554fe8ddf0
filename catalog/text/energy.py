"""Electricity and what it emits as text: no more digits than are known."""

from __future__ import annotations

from decimal import Decimal

from .money import round_money_interval
from .quantity import DASH, UNKNOWN

KG_PER_TONNE = 1000.0


def format_interval(low: float, likely: float, high: float, unit: str) -> str:
    """Return "1,250–1,600 kWh, likely 1,400", rounded as the interval supports.

    >>> format_interval(1234.0, 1400.0, 1612.0, "kWh")
    '1,250–1,600 kWh, likely 1,400'
    """
    ends = round_money_interval(low, likely, high)
    first, middle, last = (_plain(amount) for amount in ends)
    return f"{middle} {unit}" if first == last else f"{first}{DASH}{last} {unit}, likely {middle}"


def format_co2e_interval(low_kg: float, likely_kg: float, high_kg: float) -> str:
    """Return the same of emissions, in tonnes from one tonne on.

    >>> format_co2e_interval(380.0, 450.0, 530.0), format_co2e_interval(3800.0, 4500.0, 5300.0)
    ('380–530 kg CO2e, likely 450', '3.8–5.3 t CO2e, likely 4.5')
    """
    if likely_kg < KG_PER_TONNE:
        return format_interval(low_kg, likely_kg, high_kg, "kg CO2e")
    low, likely, high = (kg / KG_PER_TONNE for kg in (low_kg, likely_kg, high_kg))
    return format_interval(low, likely, high, "t CO2e")


def format_kg(kg: float | None) -> str:
    """Return kilograms to two significant digits: "5.1", "0.0023", "1,200"; "?" if unknown."""
    if kg is None:
        return UNKNOWN
    if not kg:
        return "0"
    exponent = Decimal(str(kg)).adjusted() - 1
    grid = Decimal(1).scaleb(exponent)
    return _plain((Decimal(str(kg)) / grid).quantize(Decimal(1)) * grid)


def _plain(amount: Decimal) -> str:
    decimals = max(0, -int(amount.as_tuple().exponent))
    return f"{amount:,.{decimals}f}"
