"""Where the user's price snapshots lie, and which is the newest. Nothing is read here."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from .paths import data_dir

PREFIX, SUFFIX = "prices-", ".json"
NAME_FORMAT = f"{PREFIX}%Y%m%dT%H%M%S.%fZ{SUFFIX}"
"""Names sort as their times do."""


def price_folder() -> Path:
    """Return the folder of the user's snapshots, which need not exist."""
    return data_dir() / "prices"


def snapshot_files() -> list[Path]:
    """Return the user's snapshots, the oldest first; a file that is being written is none."""
    folder = price_folder()
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [folder / name for name in names if name.startswith(PREFIX) and name.endswith(SUFFIX)]


def newest_snapshot_file() -> Path | None:
    """Return the newest of the user's snapshots; None where there is none."""
    files = snapshot_files()
    return files[-1] if files else None


def snapshot_file(made_at: datetime) -> Path:
    """Return the file of a snapshot that is made at this moment."""
    return price_folder() / made_at.astimezone(UTC).strftime(NAME_FORMAT)
