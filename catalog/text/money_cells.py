"""A price as a cloud's answer spells it → dollars, exact."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation


def decimal_of(cell: object) -> Decimal | None:
    """Return the amount, or None where the cell is no finite number.

    >>> decimal_of("55.0400000000"), decimal_of(7.5), decimal_of("NaN"), decimal_of(None)
    (Decimal('55.04'), Decimal('7.5'), None, None)
    """
    if isinstance(cell, bool) or not isinstance(cell, (str, int, float, Decimal)):
        return None
    try:
        amount = Decimal(str(cell))
    except InvalidOperation:
        return None
    if not amount.is_finite():
        return None
    # Trailing zeros say nothing, and an exponent is not how money is written.
    return amount.quantize(Decimal(1)) if amount == amount.to_integral() else amount.normalize()
