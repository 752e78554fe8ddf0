"""The user's price snapshots on disk: one file each, written whole or not at all, never changed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from ..embedded import Catalogue, embedded_catalogue
from ..errors import PriceError
from ..files import write_atomically
from ..price_folder import newest_snapshot_file, snapshot_file
from .snapshot import SCHEMA_VERSION, PriceSnapshot, with_snapshot


def write_snapshot(snapshot: PriceSnapshot) -> Path:
    """Write a snapshot into the user's folder; return its file. Older ones stay.

    Raises:
        PriceError: It cannot be written; what was there is unchanged.
    """
    path = snapshot_file(snapshot.made_at)
    try:
        write_atomically(path, snapshot.model_dump_json(indent=1) + "\n", mode=0o600)
    except OSError as error:
        raise PriceError(
            f"The prices cannot be kept in {path.parent}: {error.strerror}.",
            fix="make the folder writable, or point GPUPLAN_HOME at another one.",
        ) from error
    return path


def read_snapshot(path: Path) -> PriceSnapshot:
    """Return the snapshot that a file holds.

    Raises:
        PriceError: It cannot be read, is damaged, or a newer gpuplan wrote it.
    """
    try:
        snapshot = PriceSnapshot.model_validate_json(path.read_bytes())
    except OSError as error:
        raise PriceError(
            f"The price snapshot {path} cannot be read: {error.strerror}.",
            fix="make it readable.",
        ) from error
    except ValidationError as error:
        raise PriceError(
            f"The price snapshot {path} is damaged: {error.error_count()} of its fields are wrong.",
            fix="move it away; then the snapshot before it is used, or the package's own prices.",
        ) from error
    if snapshot.schema_version > SCHEMA_VERSION:
        raise PriceError(
            f"The price snapshot {path} is of version {snapshot.schema_version}; this gpuplan"
            f" reads up to {SCHEMA_VERSION}.",
            fix="upgrade gpuplan, or move the file away.",
        )
    return snapshot


def newest_snapshot() -> PriceSnapshot | None:
    """Return the user's newest snapshot; None where there is none."""
    path = newest_snapshot_file()
    return None if path is None else read_snapshot(path)


def catalogue_with(catalogue: Catalogue, path: Path) -> Catalogue:
    """Return the catalogue at the prices of one snapshot file."""
    if catalogue is embedded_catalogue():
        return _embedded_with(path)
    return with_snapshot(catalogue, read_snapshot(path))


@lru_cache(maxsize=2)
def _embedded_with(path: Path) -> Catalogue:
    # A snapshot file is never changed, and one command asks for the catalogue several times.
    return with_snapshot(embedded_catalogue(), read_snapshot(path))
