"""What went wrong in a run: `failure.json` of the folder of results, written and read back."""

from __future__ import annotations

import errno
import json
import time
from pathlib import Path

from .....catalog import errors
from .....catalog.errors import GpuplanError
from .....catalog.files import write_atomically
from ...job import Job

FAILURE_FILE = "failure.json"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


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


def disk_full(job: Job, error: BaseException) -> GpuplanError | None:
    """Return the error for the user, if a disk had no room left; None where it is another one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            where = f" writing {cause.filename}" if cause.filename else ""
            return GpuplanError(
                f"The disk is full{where}; results go to {job.out_dir}.",
                fix="free some space, or keep fewer checkpoints (--keep); the same command then"
                " continues from the newest checkpoint that is whole.",
            )
        cause = cause.__cause__ or cause.__context__
    return None


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
