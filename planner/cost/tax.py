"""Tax on what is rented, exact to the cent."""

from __future__ import annotations

from decimal import Decimal

from ..plan.plan import CostLine
from .run_cost import CENT

TAX = "tax"
PERCENT = Decimal(100)


def tax_rate(percent: Decimal) -> Decimal:
    """Return the tax on one dollar, dollars."""
    return percent / PERCENT


def tax_usd(usd: Decimal, percent: Decimal | None) -> Decimal:
    """Return the tax on an amount, dollars, to the cent; 0 where no tax is counted."""
    return (usd * (percent or Decimal(0)) / PERCENT).quantize(CENT)


def taxed(usd: Decimal, percent: Decimal | None) -> Decimal:
    """Return an amount with its tax, dollars."""
    return usd + tax_usd(usd, percent)


def with_tax(lines: tuple[CostLine, ...], percent: Decimal | None) -> tuple[CostLine, ...]:
    """Return the lines of a cost with one of the tax on their sum; unchanged without a tax."""
    if not percent:
        return lines
    net = sum((line.usd for line in lines), Decimal(0))
    line = CostLine(
        name=TAX,
        quantity=float(net),
        unit="USD",
        unit_usd=tax_rate(percent),
        usd=tax_usd(net, percent),
    )
    return (*lines, line)
