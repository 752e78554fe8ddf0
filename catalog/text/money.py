"""Dollars as text for a terminal: no more digits than are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal

MILLION = 10**6
DASH = "–"  # noqa: RUF001
CELLS = 4
"""Into how many parts an interval of dollars is cut, at least."""


def round_money_interval(
    low_usd: float, likely_usd: float, high_usd: float
) -> tuple[Decimal, Decimal, Decimal]:
    """Return the three amounts in dollars, rounded to the grid that the interval supports.

    The grid is the largest power of ten, or half of one, that still cuts the interval in four or
    more; the order low ≤ likely ≤ high survives, because every amount is rounded to the same grid.

    >>> [int(usd) for usd in round_money_interval(3087, 3480, 3961)]
    [3100, 3500, 4000]
    >>> [int(usd) for usd in round_money_interval(61.6, 74.1, 88.2)]
    [60, 75, 90]
    """
    grid = _known_grid(high_usd - low_usd, likely_usd)
    return (_rounded(low_usd, grid), _rounded(likely_usd, grid), _rounded(high_usd, grid))


def format_money_interval(
    low_usd: float | None, likely_usd: float | None, high_usd: float | None
) -> str:
    """Return "$3,100–4,000, likely $3,500", or "price unknown" when a part of it is.

    >>> format_money_interval(3087, 3480, 3961), format_money_interval(1.9e6, 2.1e6, 2.4e6)
    ('$3,100–4,000, likely $3,500', '$1.9–2.4M, likely $2.1M')
    """
    if low_usd is None or likely_usd is None or high_usd is None:
        return "price unknown"
    (low, likely, high), unit = _in_words(low_usd, likely_usd, high_usd)
    exact = f"${likely}{unit}"
    return exact if low == high else f"${low}{DASH}{high}{unit}, likely {exact}"


def format_money_range(
    low_usd: float | None, likely_usd: float | None, high_usd: float | None
) -> str:
    """Return "$3,100–4,000" for a column, "$1.9–2.4M", or "?" when it is unknown."""
    if low_usd is None or likely_usd is None or high_usd is None:
        return "?"
    (low, likely, high), unit = _in_words(low_usd, likely_usd, high_usd)
    return f"${likely}{unit}" if low == high else f"${low}{DASH}{high}{unit}"


def _in_words(low_usd: float, likely_usd: float, high_usd: float) -> tuple[Sequence[str], str]:
    """Return the three rounded amounts without a sign, and "M" where they are of millions."""
    amounts = round_money_interval(low_usd, likely_usd, high_usd)
    if amounts[1] < MILLION:
        return _same_digits(amounts), ""
    return [f"{usd:,f}" for usd in _shortest([usd / MILLION for usd in amounts])], "M"


def format_money(usd: float | Decimal | None) -> str:
    """Return one amount to three significant digits ("$3,480", "$0.0042"), or "?" if unknown."""
    if usd is None:
        return "?"
    amount = Decimal(str(usd))
    if not amount:
        return "$0"
    return f"${_digits(_rounded(float(amount), _power(min(0, amount.adjusted() - 2))))}"


def format_price(usd_per_hour: float | Decimal | None) -> str:
    """Return a stated price, cents and all ("$23.92", "$0.5260"), or "?" if it is not known."""
    if usd_per_hour is None:
        return "?"
    return f"${usd_per_hour:,.2f}" if usd_per_hour >= 1 else f"${usd_per_hour:.3f}"


def _known_grid(width_usd: float, likely_usd: float) -> Decimal:
    if width_usd > 0:
        power = _power(math.floor(math.log10(width_usd / CELLS)))
        return 5 * power if width_usd / CELLS >= 5 * power else power
    # An exact amount is shown to the cent, or to three digits below a dollar.
    if abs(likely_usd) >= 1 or not likely_usd:
        return _power(-2)
    return _power(math.floor(math.log10(likely_usd)) - 2)


def _power(exponent: int) -> Decimal:
    return Decimal(1).scaleb(exponent)


def _rounded(usd: float, grid: Decimal) -> Decimal:
    return (Decimal(str(usd)) / grid).quantize(Decimal(1), rounding=ROUND_HALF_EVEN) * grid + 0


def _digits(usd: Decimal) -> str:
    (text,) = _same_digits((usd,))
    return text


def _shortest(amounts: Sequence[Decimal]) -> tuple[Decimal, ...]:
    """Return the amounts with as many decimals as the finest of them needs, and no more."""
    decimals = max(max(0, -int(usd.normalize().as_tuple().exponent)) for usd in amounts)
    return tuple(usd.quantize(Decimal(1).scaleb(-decimals)) for usd in amounts)


def _same_digits(amounts: Sequence[Decimal]) -> tuple[str, ...]:
    """Return the amounts with as many decimals as the finest of them needs."""
    decimals = max(max(0, -int(usd.normalize().as_tuple().exponent)) for usd in amounts)
    # One decimal of a dollar is written as two: $12.30.
    return tuple(f"{usd:,.{2 if decimals == 1 else decimals}f}" for usd in amounts)
