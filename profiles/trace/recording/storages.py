"""The storages of a step: what is known of each, from its birth to its death."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ...profile import CATEGORIES

PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, TEMPORARY, INPUTS, BUFFERS = range(len(CATEGORIES))
ROOT = -1
NEVER = 1 << 60


@dataclass
class Rows:
    """The storages, one entry each, in order of birth."""

    birth: list[int] = field(default_factory=list)
    death: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    category: list[int] = field(default_factory=list)
    instance: list[int] = field(default_factory=list)
    producer: list[str] = field(default_factory=list)
    entered: list[int] = field(default_factory=list)
    """First block execution that takes it as an input; ROOT for none."""
    outside: list[int] = field(default_factory=list)
    """Last tick at which the backward pass of another block execution touches it; -1 for none."""
    inside: list[int] = field(default_factory=list)
    """The same of the block execution that made it."""
    kept: list[bool] = field(default_factory=list)
    """Whether autocast keeps it until its region ends."""


class Storages:
    """The storages on the device, by their keys while they live and by their rows for good.

    Args:
        now: Returns the tick that it is.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self.rows = Rows()
        self._now = now
        self._live: dict[int, tuple[int, Any]] = {}
        self._weights: set[int] = set()

    def row(self, key: int) -> int | None:
        """Return the row of a storage that lives; None where it was never noted."""
        known = self._live.get(key)
        return None if known is None else known[0]

    def hold(self, storage: Any, category: int) -> None:
        """Note a storage that exists before the step, or change the category of a known one."""
        row = self.row(storage._cdata)
        if row is not None:
            self.rows.category[row] = category
        elif storage.nbytes():
            self.birth(storage, storage.nbytes(), tick=-1, instance=ROOT, producer="")
            self.rows.category[-1] = category
        if category == PARAMETERS:
            self._weights.add(storage._cdata)

    def birth(self, storage: Any, size: int, *, tick: int, instance: int, producer: str) -> None:
        """Note a storage, and that it died once it does.

        Args:
            storage: of a tensor.
            size: its bytes.
            tick: when it was made; -1 before the step.
            instance: the block execution that made it; ROOT for none.
            producer: name of the operation that made it.
        """
        key, row = storage._cdata, len(self.rows.birth)
        rows = self.rows
        rows.birth.append(tick)
        rows.death.append(NEVER)
        rows.bytes.append(size)
        rows.category.append(TEMPORARY)
        rows.instance.append(instance)
        rows.producer.append(producer)
        rows.entered.append(ROOT)
        rows.outside.append(-1)
        rows.inside.append(-1)
        rows.kept.append(False)

        def died(_: Any, self: Storages = self, key: int = key, row: int = row) -> None:
            self._live.pop(key, None)
            self._weights.discard(key)
            self.rows.death[row] = self._now()

        self._live[key] = (row, weakref.ref(storage, died))

    def has_weight(self, keys: Iterable[int]) -> bool:
        """Return whether one of these storages is that of a parameter, or a cast copy of one."""
        return not self._weights.isdisjoint(keys)

    def add_weights(self, keys: Iterable[int]) -> None:
        """Note that these storages hold cast copies of parameters."""
        self._weights.update(keys)
