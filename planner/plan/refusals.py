"""What is no value of a field of a question: said where it is made, with what to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from numbers import Integral

from ...catalog.errors import UsageError, did_you_mean
from ...catalog.text.amounts import parse_count


def refuse_no_amount(name: str, value: object) -> None:
    """Raise UsageError for what is no number above zero; None is no amount, and may be."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not value > 0:
        raise UsageError(
            f"{name}={value!r} is not a number above zero.",
            fix=f"give a number, such as {name}={_as_number(value)}.",
        )


def _as_number(value: object) -> str:
    """Return what somebody meant who wrote an amount as the command line takes it: "10B"."""
    try:
        return f"{parse_count(value):g}" if isinstance(value, str) else "1000"
    except ValueError:
        return "1000"


def refuse_no_amounts(name: str, values: Iterable[object]) -> None:
    """Raise UsageError for counts of which one is no whole number above zero."""
    for value in values:
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise UsageError(
                f"{name}: {value!r} is not a whole number above zero.",
                fix=f"give such numbers: {name}=(1, 8).",
            )


def refuse_no_tuple(name: str, value: object) -> None:
    """Raise UsageError for one item where several are taken (letters of a word)."""
    if isinstance(value, str):
        kind = "one word"
    elif not isinstance(value, Iterable):
        kind = "one item"
    else:
        return
    raise UsageError(
        f"{name}={value!r} is {kind}, and several are taken.",
        fix=f"write {name}=({value!r},).",
    )


def refuse_other_word(name: str, value: str, words: tuple[str, ...]) -> None:
    """Raise UsageError for a word that is none of these."""
    if value not in words:
        raise UsageError(
            f"{name}={value!r} is not one of {', '.join(words)}.{did_you_mean(str(value), words)}",
            fix="take one of them.",
        )


def refuse_other_type(name: str, value: object, wanted: type) -> None:
    """Raise UsageError for what is not of the type that a field or an argument takes."""
    if not isinstance(value, wanted):
        raise UsageError(
            f"{name}={value!r} is not a {wanted.__name__}.",
            fix=f"write {name}=gpuplan.{wanted.__name__}(…).",
        )
