"""US dollars: rounded to the cent, and in a sentence."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

from ..cost.run_cost import CENT

NOTHING = Decimal(0)
QUANTUM = Decimal("0.000001")
"""Quantities and unit prices of the ledger have so many decimals."""


def cents(usd: Decimal) -> Decimal:
    """Return US dollars rounded half up to the cent, as a spreadsheet rounds."""
    return usd.quantize(CENT, rounding=ROUND_HALF_UP)


def rounded_usd(quantity: Decimal, unit_usd: Decimal) -> Decimal:
    """Return quantity x unit price, US dollars, rounded half up to the cent."""
    return cents(quantity * unit_usd)


def quantum(value: float | Decimal) -> Decimal:
    """Return a number with six decimals, exactly."""
    return Decimal(value).quantize(QUANTUM)


def dollars(usd: Decimal | float) -> str:
    """Return whole dollars: "$12,346"; cents below a hundred dollars.

    >>> dollars(Decimal("12345.60")), dollars(Decimal("9.5"))
    ('$12,346', '$9.50')
    """
    sign = "-" if usd < 0 else ""
    return f"{sign}${abs(usd):,.0f}" if abs(usd) >= 100 else f"{sign}${abs(usd):,.2f}"
