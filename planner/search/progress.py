"""How far a search is, told to whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int | None, int | None], None]
"""Takes what is being done, how much is done, and of how much; None where that is not known."""


def untold(_stage: str, _done: int | None, _total: int | None) -> None:
    """Tell nobody."""
