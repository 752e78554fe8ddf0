"""What went wrong in a run: `failure.json` of the folder of results, written and read back."""

from __future__ import annotations

import json
import time
from pathlib import Path

from ....catalog import errors
from ....catalog.errors import GpuplanError
from ....catalog.files import write_atomically

FAILURE_FILE = "failure.json"


def write_failure(folder: Path, error: GpuplanError, *, rank: int | None) -> None:
    """Write what went wrong.

    Args:
        folder: of the results.
        error: what is told of it.
        rank: of the process that failed; None where none is known.
    """
    values = {
        "class": type(error).__name__,
        "message": error.message,
        "fix": error.fix,
        "exit_code": error.exit_code,
        "rank": rank,
        "time": time.time(),
    }
    write_atomically(folder / FAILURE_FILE, json.dumps(values, indent=1) + "\n")


def read_failure(folder: Path) -> GpuplanError | None:
    """Return the error that a process left, of its class where that is known; None if none did."""
    try:
        values = json.loads((folder / FAILURE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(values, dict):
        return None
    known = getattr(errors, str(values["class"]), None)
    error = (known or GpuplanError)(values["message"], fix=values["fix"])
    error.exit_code = values["exit_code"]
    return error
