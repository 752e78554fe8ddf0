"""Profiles of the published models, kept beside their records: to trace them all takes minutes.

One is found by its content: the model file, its params and numerics, the version of torch and the
code that traces; what the model file imports of this repository stands beside it with its hash.
Where any of these has changed it is traced again; `make accuracy` keeps it.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

from gpuplan.catalog.errors import GpuplanError
from gpuplan.catalog.files import write_atomically
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process import cache
from gpuplan.profiles.tracing_process.batch import ProfileRequest, profile_all
from gpuplan.profiles.tracing_process.kept import kept_file

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "tests" / "published" / "profiles.jsonl.xz"


class KeptTraces:
    """Makes Profiles as `profile_all` does, from an archive where they are in it.

    Pass `profiles` where a profiler is asked for; `keep` then rewrites the archive.
    """

    def __init__(self, archive: Path = ARCHIVE) -> None:
        self._archive = archive
        self._kept = _read(archive)
        self._asked: dict[str, tuple[str, str]] = {}
        self.requests: list[ProfileRequest] = []
        """All that were asked for."""
        self.missed = 0
        """How many of them neither the archive holds nor a file beside the model (`kept`)."""

    def profiles(self, requests: Sequence[ProfileRequest]) -> dict[str, Profile | GpuplanError]:
        """Return the Profile of every request, or the error it ended with, by its key."""
        made: dict[str, Profile | GpuplanError] = {}
        others: list[ProfileRequest] = []
        self.requests += requests
        for request in requests:
            key = request.content_key() or ""
            imported, profile = self._kept.get(key, ("", ""))
            if profile and _are_as_they_were(imported):
                self._asked[key] = imported, profile
                made[request.key] = Profile.model_validate_json(profile)
            else:
                others.append(request)
        self.missed += sum(not kept_file(request.path).exists() for request in others)
        made |= profile_all(others)
        for request in others:
            profile = made[request.key]
            key, imported = request.content_key(), _imported(request)
            if key and isinstance(profile, Profile) and imported is not None:
                self._asked[key] = imported, profile.model_dump_json()
        return made

    def keep(self) -> None:
        """Write the Profiles that were asked for, and no others, if these are not what is kept."""
        if self._asked != self._kept:
            lines = ("\t".join((key, *parts)) + "\n" for key, parts in sorted(self._asked.items()))
            content = lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)
            write_atomically(self._archive, content)


def _imported(request: ProfileRequest) -> str | None:
    """Return the files of this repository that a model file imports, with their hashes, as JSON.

    None: it imports others too, of which nothing is known elsewhere.
    """
    made_from = cache.files_of(request.cache_key() or "")
    if made_from is None:
        return None
    paths = [Path(name) for name in made_from if Path(name) != request.path]
    if not all(path.is_relative_to(ROOT) for path in paths):
        return None
    return json.dumps({str(path.relative_to(ROOT)): _digest(path) for path in sorted(paths)})


def _are_as_they_were(imported: str) -> bool:
    found: dict[str, str] = json.loads(imported)
    return all(
        (ROOT / name).exists() and _digest(ROOT / name) == was for name, was in found.items()
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(archive: Path) -> dict[str, tuple[str, str]]:
    """Return (imported files, Profile), both as JSON, by key."""
    if not archive.exists():
        return {}
    with lzma.open(archive, "rt", encoding="utf-8") as lines:
        parts = (line.rstrip("\n").split("\t", 2) for line in lines)
        return {key: (imported, profile) for key, imported, profile in parts}
