"""The user's price snapshots on disk: one file each, written whole or not at all, never changed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from ..embedded import Catalogue, embedded_catalogue
from ..errors import PriceError
from ..files import one_writer as one_writer_of
from ..files import write_atomically
from ..price_folder import newest_snapshot_file, price_folder, snapshot_file
from .snapshot import SCHEMA_VERSION, PriceSnapshot, with_snapshot

LOCK_FILE = ".lock"
FIX = "move it away; then the snapshot before it is used, or the package's own prices."
MOST_USD_PER_HOUR = 10**9
"""Above it a price of one machine is a slip."""


@contextlib.contextmanager
def one_writer() -> Iterator[None]:
    """Let one process at a time follow the newest snapshot with the next, others wait.

    Raises:
        PriceError: Nothing can be written in the user's folder.
    """
    folder = price_folder()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(one_writer_of(folder / LOCK_FILE))
        except OSError as error:
            raise _cannot_be_kept(folder, error) from error
        yield


def write_snapshot(snapshot: PriceSnapshot) -> Path:
    """Write a snapshot into the user's folder; return its file. Older ones stay.

    Raises:
        PriceError: It cannot be written; what was there is unchanged.
    """
    path = snapshot_file(snapshot.made_at)
    try:
        write_atomically(path, snapshot.model_dump_json(indent=1) + "\n", mode=0o600)
    except OSError as error:
        raise _cannot_be_kept(path.parent, error) from error
    return path


def _cannot_be_kept(folder: Path, error: OSError) -> PriceError:
    return PriceError(
        f"The prices cannot be kept in {folder}: {error.strerror}.",
        fix="make the folder writable, or point GPUPLAN_HOME at another one.",
    )


def read_snapshot(path: Path) -> PriceSnapshot:
    """Return the snapshot that a file holds.

    Raises:
        PriceError: It cannot be read, is damaged, or a newer gpuplan wrote it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PriceError(
            f"The price snapshot {path} cannot be read: {error.strerror}.",
            fix="make it readable.",
        ) from error
    try:
        snapshot = PriceSnapshot.model_validate_json(content)
    except ValidationError as error:
        # A later version may keep its prices in other fields.
        _refuse_newer(path, _version_of(content))
        raise PriceError(
            f"The price snapshot {path} is damaged: {error.error_count()} of its fields are wrong.",
            fix=FIX,
        ) from error
    _refuse_newer(path, snapshot.schema_version)
    for offer in snapshot.offers:
        for usd in (offer.on_demand_usd_per_hour, offer.spot_usd_per_hour):
            if usd is not None and not (usd.is_finite() and 0 < usd < MOST_USD_PER_HOUR):
                place = f"{offer.provider} {offer.region} {offer.instance_type}"
                raise PriceError(
                    f"The price snapshot {path} is damaged: {place} costs {usd} $/h.", fix=FIX
                )
    return snapshot


def _version_of(content: bytes) -> int:
    """Return the version that a file says it is of; 0 where it says none."""
    try:
        said = json.loads(content)["schema_version"]
    except (ValueError, LookupError, TypeError):
        return 0
    return said if isinstance(said, int) else 0


def _refuse_newer(path: Path, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise PriceError(
            f"The price snapshot {path} is of version {version}; this gpuplan reads up to"
            f" {SCHEMA_VERSION}.",
            fix="upgrade gpuplan, or move the file away.",
        )


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
