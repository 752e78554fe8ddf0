"""Which measurements of devices predictions rest on, as one value that is handed to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class CurveChoice:
    """Which curve files are used before all others, and whose are not used."""

    given: tuple[Path, ...] = ()
    """The user's files, used before those that are found (`user_curves.py`)."""
    left_out: frozenset[str] = frozenset()
    """Accelerators that are predicted as if nobody had measured them."""

    def without(self, accelerators: Iterable[str]) -> CurveChoice:
        """Return the choice with these accelerators left out as well."""
        return replace(self, left_out=self.left_out | frozenset(accelerators))


USUAL_CURVES = CurveChoice()
"""The files that are found, then the embedded ones; nobody is left out."""
