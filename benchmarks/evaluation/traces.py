"""Profiles of the published models, kept beside their records: to trace them all takes minutes.

One is found by its content: the model file, its params and numerics, the version of torch and the
code that traces. Where any of these has changed it is traced again; `make accuracy` keeps it.
"""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

from gpuplan.catalog.errors import GpuplanError
from gpuplan.catalog.files import write_atomically
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process import cache
from gpuplan.profiles.tracing_process.batch import ProfileRequest, profile_all

ARCHIVE = Path(__file__).parents[2] / "tests" / "published" / "profiles.jsonl.xz"


class KeptTraces:
    """Makes Profiles as `profile_all` does, from an archive where they are in it.

    Pass `profiles` where a profiler is asked for; `keep` then rewrites the archive.
    """

    def __init__(self, archive: Path = ARCHIVE) -> None:
        self._archive = archive
        self._kept = _read(archive)
        self._asked: dict[str, str] = {}
        self.requests: list[ProfileRequest] = []
        """All that were asked for."""
        self.missed = 0
        """How many of them the archive does not hold."""

    def profiles(self, requests: Sequence[ProfileRequest]) -> dict[str, Profile | GpuplanError]:
        """Return the Profile of every request, or the error it ended with, by its key."""
        made: dict[str, Profile | GpuplanError] = {}
        others: list[ProfileRequest] = []
        self.requests += requests
        for request in requests:
            key = request.content_key() or ""
            if key in self._kept:
                self._asked[key] = self._kept[key]
                made[request.key] = Profile.model_validate_json(self._kept[key])
            else:
                others.append(request)
        self.missed += len(others)
        made |= profile_all(others)
        for request in others:
            profile = made[request.key]
            key = request.content_key()
            if key and isinstance(profile, Profile) and _stands_alone(request):
                self._asked[key] = profile.model_dump_json()
        return made

    def keep(self) -> None:
        """Write the Profiles that were asked for, and no others, if these are not what is kept."""
        if self._asked != self._kept:
            lines = (f"{key}\t{text}\n" for key, text in sorted(self._asked.items()))
            content = lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)
            write_atomically(self._archive, content)


def _stands_alone(request: ProfileRequest) -> bool:
    """Return whether a model was made from its own file only, all that the key knows of."""
    files = cache.files_of(request.cache_key() or "")
    return files is not None and list(files) == [str(request.path)]


def _read(archive: Path) -> dict[str, str]:
    if not archive.exists():
        return {}
    with lzma.open(archive, "rt", encoding="utf-8") as lines:
        parts = (line.rstrip("\n").partition("\t") for line in lines)
        return {key: text for key, _, text in parts}
