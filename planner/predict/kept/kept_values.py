"""Many small results of one model, kept together from search to search."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass

from ...plan.setup import Setup
from .kept_tables import KeptTables

MOST_VALUES = 5_000
"""A search of the whole catalogue to 512 nodes makes 1,000; reading them takes some 10 ms."""


@dataclass
class KeptValues:
    """Values that JSON can hold, by key; read once, when one is first asked for, and written once.

    Floats are found bit by bit, for JSON writes the shortest decimals that give them again.
    """

    kept: KeptTables | None
    """Where they are; None for nowhere: then values are remembered as long as this object is."""
    made_from: Callable[[], Mapping[str, object]]
    """Everything that all of them follow from but the code and their keys, as JSON can hold it."""
    _known: dict[str, object] | None = None
    _added: bool = False

    def value(self, key: tuple[object, ...], make: Callable[[], object]) -> object:
        """Return the value of a key, which is computed if it is not known.

        Args:
            key: whose `repr` is equal in every process: no sets.
            make: computes it.
        """
        known, text = self._read(), repr(key)
        if text not in known:
            known[text] = make()
            self._added = True
        return known[text]

    def holds(self, key: tuple[object, ...]) -> bool:
        """Return whether the value of a key is known."""
        return repr(key) in self._read()

    def _read(self) -> dict[str, object]:
        """Return what is known, which is read when it is first asked for."""
        if self._known is None:
            content = None if self.kept is None else self.kept.get(self._name())
            self._known = {} if content is None else _decoded(content)
        return self._known

    def save(self) -> None:
        """Keep what was added, if there is a place for it."""
        if self.kept is None or self._known is None or not self._added:
            return
        newest = dict(list(self._known.items())[-MOST_VALUES:])
        self.kept.put(self._name(), zlib.compress(json.dumps(newest).encode(), level=1))
        self._added = False

    def _name(self) -> str:
        text = json.dumps(self.made_from(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def plain(value: object) -> object:
    """Return dataclasses, tuples and sets as JSON can hold them, equal for equal values."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {one.name: plain(getattr(value, one.name)) for one in fields(value)}
        return {"class": type(value).__name__, **parts}
    if isinstance(value, frozenset):
        return {"class": "frozenset", "items": sorted(value)}
    return [plain(one) for one in value] if isinstance(value, tuple) else value


def setup_text(setup: Setup) -> str:
    """Return what is equal for equal setups, in every process."""
    return json.dumps(plain(setup))


def _decoded(content: bytes) -> dict[str, object]:
    """Return what was kept; nothing where these bytes are not that."""
    try:
        found = json.loads(zlib.decompress(content))
    except (zlib.error, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
