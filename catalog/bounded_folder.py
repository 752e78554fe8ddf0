"""A folder of files that can be made again, kept below a size by deleting what is used least."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .files import SCRATCH_SUFFIX

ABANDONED_AFTER_S = 3600
"""Age from which a temporary file is taken for one whose process was killed."""


def drop_oldest(keep: Path, limit_bytes: int) -> None:
    """Delete the files beside `keep` that were used longest ago, but not it, until the limit holds.

    Other processes store and delete at the same time: what has gone meanwhile is no error, and what
    another is still writing stays.

    Raises:
        OSError: The folder cannot be read, or a file in it cannot be deleted.
    """
    sizes = {file: status for file in keep.parent.iterdir() if (status := _status(file))}
    kept = sizes.pop(keep, None)
    if kept is None:
        return  # Another process deleted it, so that its limit holds.
    entries = [
        (status.st_mtime, status.st_size, file)
        for file, status in sizes.items()
        if file.suffix != SCRATCH_SUFFIX or status.st_mtime < kept.st_mtime - ABANDONED_AFTER_S
    ]
    total_bytes = kept.st_size + sum(size_bytes for _, size_bytes, _ in entries)
    for _, size_bytes, file in sorted(entries):
        if total_bytes <= limit_bytes:
            return
        file.unlink(missing_ok=True)
        total_bytes -= size_bytes


def _status(file: Path) -> os.stat_result | None:
    """Return the status of a file; None if it has gone."""
    with contextlib.suppress(FileNotFoundError):
        return file.stat()
    return None
