"""The constants of the step model that no kernel measurement gives: `data/constants.toml`.

Each has a physical prior with its source, and a value refitted to the open records. A prediction
is handed the values that it uses (`Constants`, a field of the `ModelCache`): the records of a fold
are predicted with constants that were fitted without them, beside others predicted as usual.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A constant, what is known of it beforehand, and how far records may move it."""

    name: str
    value: float
    prior: float
    spread: float
    """One standard deviation of ln(constant) around its prior."""
    source: str
    unit: str = ""
    most: float | None = None


class Constants(Mapping[str, float]):
    """The value of every constant by name, as a prediction uses them; it never changes."""

    __slots__ = ("_fitted_without", "_hash", "_values")

    def __init__(
        self, values: Mapping[str, float], *, fitted_without: Collection[str] = ()
    ) -> None:
        self._values = dict(values)
        self._fitted_without = frozenset(fitted_without)
        self._hash = hash((frozenset(self._values.items()), self._fitted_without))

    @classmethod
    def shipped(cls) -> Constants:
        """Return the values in the table of constants."""
        return _shipped()

    def replaced(self, values: Mapping[str, float]) -> Constants:
        """Return these constants with other values for some of them.

        Raises:
            KeyError: a name is not that of a constant.
        """
        for name in values:
            if name not in self._values:
                raise KeyError(name)
        if not values:
            return self
        return Constants({**self._values, **values}, fitted_without=self._fitted_without)

    def without(self, name: str) -> Constants:
        """Return these constants as values that no run of this source or accelerator moved."""
        return Constants(self._values, fitted_without={*self._fitted_without, name})

    @property
    def fitted_without(self) -> frozenset[str]:
        """The sources and accelerators whose runs were left out when these were fitted."""
        return self._fitted_without

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constants):
            return False
        return self._values == other._values and self._fitted_without == other._fitted_without

    def __hash__(self) -> int:
        return self._hash


@cache
def _shipped() -> Constants:
    return Constants({name: one.value for name, one in known_constants().items()})


@cache
def known_constants() -> dict[str, Constant]:
    """Return all constants by name."""
    text = files("gpuplan.planner").joinpath("data/constants.toml").read_text(encoding="utf-8")
    return {one.name: one for one in _read(tomllib.loads(text), ())}


def _read(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Constant]:
    """Yield the constants of a table and of the tables in it: `a` and `a.b` may both be one."""
    facts = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if facts:
        yield Constant(name=".".join(path), **facts)
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _read(value, (*path, key))
