"""Tables of the planner on disk, so that the same model is planned faster the next time."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from pathlib import Path

import numpy as np

from ..catalog.bounded_folder import drop_oldest
from ..catalog.files import write_atomically
from ..catalog.paths import cache_dir

MAX_TABLES_BYTES = 100 * 10**6
CODE_OF_TABLES = ("catalog", "planner", "profiles")
"""Folders whose code and data may change a table: all that the planner imports. That is more
than need be: a table that is computed once too often costs seconds, and a stale one is wrong."""
_PACKAGE = Path(__file__).parents[1]


class TablesOnDisk:
    """What `planner.predict.kept_tables` asks for: a file for each key and version of the code.

    Where the disk cannot be read or written the tables are computed each time, which only takes
    longer: nothing is said about it.
    """

    def get(self, key: str) -> bytes | None:
        """Return what was kept under a key; None if there is nothing or it cannot be read."""
        try:
            path = _entry(key)
            content = path.read_bytes()
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # The oldest entries go first when the folder is full.
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep something under a key, if the disk allows it."""
        with contextlib.suppress(OSError):
            path = _entry(key)
            write_atomically(path, content, mode=0o600)
            drop_oldest(path, MAX_TABLES_BYTES)


def folder() -> Path:
    """Return the folder of the tables, which need not exist."""
    return cache_dir() / "tables"


def _entry(key: str) -> Path:
    made_by = hashlib.sha256(f"{_code()} {np.__version__} {key}".encode())
    return folder() / f"{made_by.hexdigest()[:32]}.table"


@functools.cache
def _code() -> str:
    """Return what changes when the code or the constants that make tables do: by content."""
    digest = hashlib.sha256()
    for file in code_of_tables():
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(_PACKAGE)} {content}\n".encode())
    return digest.hexdigest()


def code_of_tables() -> list[Path]:
    """Return the files of gpuplan on which a table may depend."""
    constants = (_PACKAGE / "planner" / "data").glob("*.*")
    curves = (_PACKAGE / "profiles" / "data" / "curves").glob("*.json")
    devices = (_PACKAGE / "catalog" / "data").rglob("*accelerators.csv")
    code = (file for name in CODE_OF_TABLES for file in (_PACKAGE / name).rglob("*.py"))
    return sorted((*constants, *curves, *devices, *code))
