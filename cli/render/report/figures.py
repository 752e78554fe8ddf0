"""Figures of a report as text: the one place where they are rounded, for every format."""

from __future__ import annotations

import re
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

from ....catalog.text.quantity import format_part
from ....planner.plan.plan import AT_LEAST

UNKNOWN = "unknown"
NOTHING = "–"  # noqa: RUF001
"""Where a figure cannot be: no limit, no price because nothing is counted."""
CENT = Decimal("0.01")
CENTS_BELOW_USD = 100
SMALL = 0.1
MILLIONTH = Decimal("0.000001")

Kind = Literal["text", "usd", "about_usd", "unit_usd", "share", "number", "count", "month"]
"""What a figure is: amounts to the cent, amounts of a simulation, unit prices, shares of 1 …"""
Value = str | int | float | Decimal | date | None


class AtLeast(Decimal):
    """An amount of which a part has no known price: the least that it may be."""


def least(amount: Decimal, lower_bound: bool) -> Decimal:  # noqa: FBT001
    """Return an amount, marked where it is the least that it may be.

    >>> as_text(least(Decimal("3.5"), True), "usd"), as_text(least(Decimal(3), False), "usd")
    ('≥ $3.50', '$3.00')
    """
    return AtLeast(amount) if lower_bound else amount


_UNSAFE = re.compile(
    # Control characters, and those that turn the direction of what follows them.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
    "|[\ud800-\udfff]"
)


def as_text(value: Value, kind: Kind) -> str:
    """Return a figure as every format shows it; None is "unknown"."""
    if value is None:
        return UNKNOWN
    if kind == "text" or isinstance(value, str):
        return clean(str(value))
    if isinstance(value, date):
        return value.isoformat()
    return {
        "usd": usd,
        "about_usd": about_usd,
        "unit_usd": unit_usd,
        "share": share,
        "number": number,
        "count": count,
        "month": str,
    }[kind](value)


def usd(amount: Decimal | float) -> str:
    """Return an amount to the cent: "$1,234.50", "−$3.00".

    >>> usd(Decimal("1234.5")), usd(Decimal("-3"))
    ('$1,234.50', '−$3.00')
    """
    cents = Decimal(str(amount)).quantize(CENT, rounding=ROUND_HALF_UP)
    sign = "−" if cents < 0 else ""  # noqa: RUF001
    return f"{_mark(amount)}{sign}${abs(cents):,}"


def _mark(amount: Decimal | float) -> str:
    return AT_LEAST if isinstance(amount, AtLeast) else ""


def about_usd(amount: Decimal | float) -> str:
    """Return an amount of a simulation in whole dollars, with cents below 100: "$42,718".

    As the sentences of `planner.budget.words` write it, so that both show the same.

    >>> about_usd(Decimal("42718.49"))
    '$42,718'
    """
    if abs(amount) < CENTS_BELOW_USD:
        return usd(amount)
    sign = "−" if amount < 0 else ""  # noqa: RUF001
    return f"{_mark(amount)}{sign}${abs(amount):,.0f}"


def unit_usd(price: Decimal | float) -> str:
    """Return a unit price with all its digits, two at least: "$55.04", "$0.023".

    >>> unit_usd(Decimal("0.0230")), unit_usd(Decimal(55))
    ('$0.023', '$55.00')
    """
    exact = Decimal(str(price)).quantize(MILLIONTH, rounding=ROUND_HALF_UP)
    text = f"{exact:,}".rstrip("0")
    whole, _, decimals = text.partition(".")
    return f"${whole}.{decimals:0<2}"


def share(value: Decimal | float) -> str:
    """Return a share of 1 as a percentage: "41 %", "<1 %"."""
    return format_part(float(value))


def number(value: Decimal | float) -> str:
    """Return a quantity: two decimals below 100, one below 1,000, none above, no trailing zero.

    What is below 0.1 has two digits: nothing that is more than 0 is shown as 0.

    >>> number(Decimal("97.857142")), number(1234.5678), number(3.0), number(0.001937)
    ('97.86', '1,235', '3', '0.0019')
    """
    if 0 < abs(value) < SMALL:
        return f"{Decimal(str(float(f'{float(value):.1e}'))):f}"
    digits = 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    text = f"{float(value):,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(value: Decimal | float) -> str:
    """Return a whole number: "12,000"."""
    return f"{value:,.0f}"


def clean(text: str) -> str:
    """Return a text on one line, without characters that act instead of being shown.

    Control characters and those that change the direction of writing become "�"; line breaks and
    tabs become spaces. Letters of every script stay.
    """
    return _UNSAFE.sub("�", re.sub(r"[\t\r\n\x0b\x0c\u2028\u2029]+", " ", text))


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters; "…" ends one that was longer."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
