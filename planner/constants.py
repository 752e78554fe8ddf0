"""The constants of the step model that no kernel measurement gives: `data/constants.toml`.

Each has a physical prior with its source, and a value refitted to the open records. A prediction
can be made with other values (`using`), which is how held-out errors are computed: the records of a
fold are predicted with the constants that were fitted without them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
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


_others: ContextVar[Mapping[str, float] | None] = ContextVar("other constants", default=None)


def fitted(name: str) -> float:
    """Return the value of a constant in this context.

    Raises:
        KeyError: there is no constant of this name.
    """
    others = _others.get()
    if others is not None and name in others:
        return others[name]
    return known_constants()[name].value


def has_constant(name: str) -> bool:
    """Return whether there is a constant of this name."""
    return name in known_constants()


@contextmanager
def using(values: Mapping[str, float]) -> Iterator[None]:
    """Predict with these values instead of the usual ones while the block runs.

    Raises:
        KeyError: a name is not that of a constant.
    """
    for name in values:
        known_constants()[name]
    token = _others.set({**(_others.get() or {}), **values})
    try:
        yield
    finally:
        _others.reset(token)


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
