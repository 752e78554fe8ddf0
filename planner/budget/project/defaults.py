"""What `data/budget.toml` says of what a project file leaves open; each with its source."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


def default(name: str) -> tuple[float, str]:
    """Return a default and where it is from.

    Raises:
        KeyError: there is none of that name.
    """
    row = _table()[name]
    return row["value"], row["source"]


@cache
def _table() -> dict[str, Any]:
    text = (files("gpuplan.planner") / "data/budget.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
