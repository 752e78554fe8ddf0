"""Which curve file is a device's own: one that the user measured, the embedded one, or none.

A file made by `gpuplan calibrate` is used before the embedded one of the same accelerator. It is
looked for in this order: the files that were given (`CurveChoice`), `GPUPLAN_CURVES`, the folder
`curves` of gpuplan's data. For a check, a device can have its own curves left out.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path

from ...catalog.errors import UsageError, UserFileError
from ...catalog.paths import data_dir
from .choice import CurveChoice
from .files import CurveFile, embedded_curve_file, measured_accelerators, read_curve_file

CURVES_VARIABLE = "GPUPLAN_CURVES"


def own_curves(accelerator: str, choice: CurveChoice) -> CurveFile | None:
    """Return what was measured on this very accelerator; None if nothing was, or it is left out.

    Parts that the user's file does not have are those of the embedded file.
    """
    if accelerator in choice.left_out:
        return None
    embedded = accelerator in measured_accelerators()
    user = user_curve_file(accelerator, choice)
    if user is None:
        return embedded_curve_file(accelerator) if embedded else None
    return _laid_over(user) if embedded else user


def user_curve_file(accelerator: str, choice: CurveChoice) -> CurveFile | None:
    """Return the curves that the user measured on this accelerator, or None.

    Raises:
        UserFileError: A file that was given is not a curve file; in the folder such a file is not
            looked at.
    """
    for path in (*choice.given, *_from_environment()):
        curves = _read(path)
        if curves.accelerator == accelerator:
            return curves
    for path in sorted(curves_dir().glob("*.json")):
        try:
            curves = _read(path)
        except UserFileError:
            continue
        if curves.accelerator == accelerator:
            return curves
    return None


def user_curves_digest(choice: CurveChoice) -> str:
    """Return what changes when the user's curve files do: which there are, and their content."""
    digest = hashlib.sha256()
    folder = sorted(curves_dir().glob("*.json"))
    for path in (*choice.given, *_from_environment(), *folder):
        content = path.read_bytes() if path.is_file() else b""
        digest.update(f"{path} {hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def refuse_unreadable(choice: CurveChoice) -> None:
    """Read the files that were given, so that a bad one is refused before there is any work.

    Raises:
        UsageError: One of them is not a curve file.
    """
    for path in choice.given:
        try:
            _read(path)
        except UserFileError as error:
            raise UsageError(error.message, fix=error.fix) from error


def curves_dir() -> Path:
    """Return the folder where calibrated curve files are kept; it need not exist."""
    return data_dir() / "curves"


def _from_environment() -> tuple[Path, ...]:
    value = os.environ.get(CURVES_VARIABLE)
    return (Path(value).expanduser(),) if value else ()


def _read(path: Path) -> CurveFile:
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise UserFileError(
            f"The curve file {path} cannot be read: {error.strerror or error}.",
            fix="give the path of a file that gpuplan calibrate wrote.",
        ) from error
    return _read_once(path, changed_ns)


@lru_cache(maxsize=64)
def _read_once(path: Path, changed_ns: int) -> CurveFile:
    del changed_ns  # Only part of the key: a file that was measured again is read again.
    return read_curve_file(path)


@lru_cache(maxsize=64)
def _merged(user: _ById) -> CurveFile:
    return user.curves.over(embedded_curve_file(user.curves.accelerator))


class _ById:
    """A curve file as a cache key: the same object is the same key."""

    def __init__(self, curves: CurveFile) -> None:
        self.curves = curves

    def __hash__(self) -> int:
        return id(self.curves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.curves is self.curves


def _laid_over(user: CurveFile) -> CurveFile:
    return _merged(_ById(user))
