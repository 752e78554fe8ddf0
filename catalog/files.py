"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

SCRATCH_SUFFIX = ".tmp"
"""Ending of a file that is being written; a killed process may leave one behind."""


def write_atomically(
    path: Path, content: str | bytes, *, mode: int | None = None, make_folder: bool = True
) -> None:
    """Write a file so that a reader, a full disk or a crash never sees or leaves a part of it.

    The content goes to a scratch file in the same folder, to the disk, and then takes the place of
    what was there. If that fails, what was there stays and the scratch file goes.

    Args:
        path: The file.
        content: All of it; text is written as UTF-8.
        mode: The permissions it gets whatever the umask says; None: those of any new file.
        make_folder: Make the folder of the file, if need be.

    Raises:
        OSError: It cannot be written there; the caller says what that means.
    """
    if make_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    text = isinstance(content, str)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}{SCRATCH_SUFFIX}")
    try:
        with open(
            scratch,
            "x" if text else "xb",
            encoding="utf-8" if text else None,
            opener=None if mode is None else _open_for_owner,
        ) as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            scratch.chmod(mode)
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _open_for_owner(path: str, flags: int) -> int:
    """Open a file that nobody else can open before it has its permissions."""
    return os.open(path, flags, 0o600)
