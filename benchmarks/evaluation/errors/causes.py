"""Likely causes of large errors, from the hand-written table beside this file."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

UNKNOWN = "unknown"
TABLE = Path(__file__).with_name("causes.toml")


def cause_of(id: str, source: str) -> str:
    """Return the likely cause of a run's error, or "unknown"."""
    for entry in _table():
        if entry["source"] == source and fnmatch(id.lower(), entry.get("id", "*").lower()):
            return entry["text"]
    return UNKNOWN


@cache
def _table() -> list[dict[str, str]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))["cause"]
