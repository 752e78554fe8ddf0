"""Profiles kept beside a model file: used where the packages that it needs are not installed.

`NAME.profiles.jsonl.xz` beside NAME.py holds a line that says from which text of NAME.py and with
which versions they were traced, then one Profile a line with its params. They count while that text
is the same, whatever else changed since: unlike entries of the cache, which are made anew when
gpuplan or a package changes, they cannot be made again on every machine.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...catalog.files import write_atomically
from ..profile import PROFILE_SCHEMA_VERSION, Numerics, Profile
from . import cache

SUFFIX = ".profiles.jsonl.xz"


def kept_file(model: Path) -> Path:
    """Return the file that holds the Profiles of a model file, which need not exist."""
    return model.with_name(f"{model.stem}{SUFFIX}")


def find_kept(
    model: Path, params: Mapping[str, Any], numerics: Collection[Numerics]
) -> Profile | None:
    """Return the kept Profile of a model file with these params in these numerics, if there is one.

    None too where the model file is no longer what was traced, or the format of Profiles changed.
    """
    file = kept_file(model)
    try:
        lines = _read(file, file.stat().st_mtime_ns)
        made_from = lines[_MADE_FROM]
    except (OSError, EOFError, ValueError, LookupError, TypeError, lzma.LZMAError):
        return None
    if made_from.get("model_sha256") != cache.file_hash(model):
        return None
    if made_from.get("schema") != PROFILE_SCHEMA_VERSION:
        return None
    try:
        profile = Profile.model_validate(lines[_key(params)])
    except (KeyError, ValidationError):
        return None
    return profile if set(numerics) <= set(profile.numerics()) else None


def write_kept(model: Path, profiles: Iterable[Profile], packages: Collection[str]) -> Path:
    """Write the Profiles of a model file beside it, in the order of their params.

    Args:
        model: The model file that they were traced from.
        profiles: All that shall be kept: what was kept before is dropped.
        packages: Packages whose installed versions are written down.
    """
    made_from = {
        "model_sha256": cache.file_hash(model),
        "schema": PROFILE_SCHEMA_VERSION,
        "traced_with": {name: cache.package_version(name) for name in sorted(packages)},
    }
    by_params = {_key(profile.params): profile.model_dump_json() for profile in profiles}
    lines = [json.dumps(made_from), *(by_params[key] for key in sorted(by_params))]
    text = "".join(f"{line}\n" for line in lines)
    file = kept_file(model)
    write_atomically(file, lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return file


_MADE_FROM = ""


@lru_cache(maxsize=8)
def _read(file: Path, _mtime_ns: int) -> dict[str, dict[str, Any]]:
    """Return what the Profiles were made from, under `_MADE_FROM`, and each by its params."""
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        first, *others = (json.loads(line) for line in lines)
    return {_MADE_FROM: first} | {_key(one["params"]): one for one in others}


def _key(params: Mapping[str, Any]) -> str:
    return json.dumps(params, sort_keys=True, default=str)
