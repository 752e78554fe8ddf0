"""What `Tensor.item()` returns in a trace: a number that may be printed and logged, never used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

STAND_IN = 1.0
"""What C code reads: the usual guard `math.isfinite(loss.item())` then stops nothing."""


class UnknownValue(float):
    """The value of a tensor without data. It is shown as nan; arithmetic with it is unknown too.

    A comparison, a condition or a whole number made of it would decide what the step does: those
    call `needed`, which must raise.
    """

    __slots__ = ("_needed",)
    _needed: Callable[[str], Any]

    def __new__(cls, needed: Callable[[str], Any]) -> UnknownValue:
        """Return a value; `needed` is called with the words for a use that needs it, and raises."""
        value = super().__new__(cls, STAND_IN)
        value._needed = needed
        return value

    def needed(self, operation: str) -> None:
        """Refuse an operation that needs the value."""
        self._needed(operation)

    def __repr__(self) -> str:
        """Return "nan"."""
        return "nan"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """Return nan in this format."""
        return format(float("nan"), spec)

    def __round__(self, ndigits: Any = None) -> Any:
        """Return this value again; without digits it would be a whole number, and is refused."""
        return self if ndigits is not None else self._needed("Tensor.item, used as a whole number,")


def unknown_in(values: Iterable[Any]) -> UnknownValue | None:
    """Return the first unknown value among these, also in lists and tuples; None without one."""
    for each in values:
        if isinstance(each, list | tuple):
            each = unknown_in(each)
        if isinstance(each, UnknownValue):
            return each
    return None


def is_condition(operation: str) -> bool:
    """Return whether an operation that needs a value asks whether something is so."""
    conditions = ("Tensor.__bool__", "Tensor.__contains__", "torch.equal", "torch.allclose")
    uses = ("used in a comparison,", "used as a condition,")
    return operation in conditions or operation.endswith(uses)


def is_whole_number(operation: str) -> bool:
    """Return whether an operation that needs a value takes it for a whole number."""
    whole = ("Tensor.__int__", "Tensor.__index__")
    return operation in whole or operation.endswith("used as a whole number,")


def _stays_unknown(self: UnknownValue, *others: Any) -> Any:
    # A tensor then does the operation itself, which refuses.
    known = all(isinstance(other, int | float) for other in others)
    return UnknownValue(self._needed) if known else NotImplemented


def _refused(use: str) -> Callable[..., Any]:
    def run(self: UnknownValue, *_: Any) -> Any:
        return self._needed(f"Tensor.item, used {use},")

    return run


_ARITHMETIC = """add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow
neg pos abs"""
_USES = {
    "in a comparison": "lt le gt ge eq ne",
    "as a condition": "bool",
    "as a whole number": "int index trunc floor ceil",
    "as a float": "float",
}
for _name in _ARITHMETIC.split():
    setattr(UnknownValue, f"__{_name}__", _stays_unknown)
for _use, _names in _USES.items():
    for _name in _names.split():
        setattr(UnknownValue, f"__{_name}__", _refused(_use))
