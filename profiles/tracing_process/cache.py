"""Profiles that were made before, on disk: found again without importing torch or the user's file.

An entry is a file of two lines: what it was made from (files with their hashes, package versions),
then the Profile. Its name is the hash of everything that is known before the file runs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...catalog.bounded_folder import drop_oldest
from ...catalog.files import write_atomically
from ...catalog.paths import cache_dir
from ...catalog.version import VERSION
from ..profile import PROFILE_SCHEMA_VERSION, Profile
from ..user_model.spec import ModelSpec

MAX_CACHE_BYTES = 200 * 10**6
CODE_THAT_TRACES = (
    "catalog/errors.py",
    "catalog/frozen.py",
    "catalog/text/quantity.py",
    "catalog/units.py",
    "catalog/vocabulary.py",
    "profiles/compared.py",
    "profiles/fourier_lengths.py",
    "profiles/missing_numerics.py",
    "profiles/passes/optimizer_rules.py",
    "profiles/passes/optimizers.py",
    "profiles/passes/storages.py",
    "profiles/profile.py",
    "profiles/trace",
    "profiles/tracing_process/child_main.py",
    "profiles/user_model",
)
"""What the child process imports: no other file of gpuplan can change a Profile."""
_PACKAGE = Path(__file__).parents[2]


class CacheWarning(UserWarning):
    """The cache cannot be used; the answer is right, but the next one will take as long."""


def cache_key(
    spec: ModelSpec, *, numerics: Sequence[str] | None, optimizer: str | None
) -> str | None:
    """Return the name of an entry, or None if the file cannot be read.

    The files that a model imports are not known yet: the entry lists them, and `load` checks them.
    """
    content = content_key(spec, numerics=numerics, optimizer=optimizer)
    return None if content is None else _digest({"path": str(spec.path), "content": content})


def content_key(
    spec: ModelSpec, *, numerics: Sequence[str] | None, optimizer: str | None
) -> str | None:
    """Return what is equal for equal models, wherever their file is; None if it cannot be read.

    Of the model it holds the file itself alone, and nothing that the file imports or reads.
    """
    try:
        source = spec.path.read_bytes()
    except OSError:
        return None
    made_from = {
        "kind": spec.kind,
        "class": spec.class_name,
        "source": hashlib.sha256(source).hexdigest(),
        "params": spec.params,
        "inputs": [asdict(one) for one in spec.inputs],
        "assumed": spec.assumed,
        "numerics": None if numerics is None else list(numerics),
        "optimizer": optimizer,
        "torch": package_version("torch"),
        "gpuplan": [VERSION, _engine()],
        "schema": PROFILE_SCHEMA_VERSION,
    }
    return _digest(made_from)


def files_of(key: str) -> dict[str, str] | None:
    """Return the files of an entry with their hashes; None if there is no such entry."""
    try:
        with _entry(key).open("rb") as lines:
            return json.loads(lines.readline())["files"]
    except OSError:
        return None


def load(key: str) -> Profile | None:
    """Return the Profile of an entry; None if there is none, or it is out of date or damaged."""
    path = _entry(key)
    try:
        header, _, profile = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    try:
        made_from = json.loads(header)
        if not _is_current(made_from):
            return None
        found = Profile.model_validate_json(profile)
    except (ValueError, KeyError, TypeError, AttributeError):
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the oldest entries go first when the cache is full
    return found


def store(
    key: str, profile_json: str, *, files: Mapping[str, str], packages: Mapping[str, str]
) -> None:
    """Keep a Profile; warn and go on when the disk does not allow it.

    Args:
        key: From `cache_key`.
        profile_json: The Profile.
        files: Path → SHA-256 of every file of the user's own that it was made from.
        packages: Package → version of those that define its layers.
    """
    header = json.dumps({"files": dict(files), "packages": dict(packages)})
    path = _entry(key)
    try:
        write_atomically(path, f"{header}\n{profile_json}".encode(), mode=0o600)
        drop_oldest(path, MAX_CACHE_BYTES)
    except OSError as error:
        warnings.warn(
            f"The profile was not cached in {path.parent}: {error.strerror or error}. The answer is"
            " not affected; set GPUPLAN_HOME to a folder that can be written, or use --no-cache.",
            CacheWarning,
            stacklevel=2,
        )


def folder() -> Path:
    """Return the folder of the entries, which need not exist."""
    return cache_dir() / "profiles"


def file_hash(name: str | Path) -> str | None:
    """Return the SHA-256 of a file; None if it cannot be read."""
    try:
        return hashlib.sha256(Path(name).read_bytes()).hexdigest()
    except OSError:
        return None


def package_version(package: str) -> str | None:
    """Return the installed version of a package, without importing it; None if not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _entry(key: str) -> Path:
    return folder() / f"{key}.profile"


@functools.cache
def _engine() -> str:
    """Return what changes when the code that traces does: a checkout keeps its version for long.

    By content, so that a profile is found again after `git switch` there and back, and in a cache
    that was carried to another machine.
    """
    digest = hashlib.sha256()
    for file in code_that_traces():
        digest.update(f"{file.relative_to(_PACKAGE)} {file_hash(file)}\n".encode())
    return digest.hexdigest()


def code_that_traces() -> list[Path]:
    """Return the files of gpuplan on which a Profile depends."""
    found = [_PACKAGE / name for name in CODE_THAT_TRACES]
    return sorted(
        file for path in found for file in ([path] if path.is_file() else path.rglob("*.py"))
    )


def _digest(made_from: Mapping[str, object]) -> str:
    text = json.dumps(made_from, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _is_current(made_from: dict[str, Any]) -> bool:
    files = made_from["files"].items()
    packages = made_from["packages"].items()
    return all(file_hash(name) == digest for name, digest in files) and all(
        package_version(name) == version for name, version in packages
    )
