"""Trace the models of run records that need packages, and keep their Profiles beside them.

    .venv-published/bin/python benchmarks/keep_profiles.py tests/published/timm.jsonl

`gpuplan validate` and `make accuracy` then predict these records where the packages are missing.
The models must be those of files beside the records; each gets a file `NAME.profiles.jsonl.xz`,
which says with which versions it was traced. `sh scripts/install.sh published` makes the
environment. `--check` writes nothing, and fails where what is kept is not what would be traced.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from gpuplan.api.validation import RecordedRuns
from gpuplan.catalog.errors import GpuplanError
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.batch import ProfileRequest, trace_all
from gpuplan.profiles.tracing_process.kept import find_kept, write_kept
from gpuplan.profiles.user_model.file_text import installed_imports

ROOT = Path(__file__).resolve().parents[1]
RECORDS = (ROOT / "tests/published/timm.jsonl", ROOT / "tests/published/diffusion.jsonl")
OWN_PACKAGES = ("gpuplan", "torch")


def main() -> None:
    options = parse_options()
    failures = 0
    for model, requests in requests_by_model(options.records).items():
        started_s = time.perf_counter()
        profiles, errors = trace(requests)
        print(f"{model.name}: {len(profiles)} in {time.perf_counter() - started_s:.0f} s")
        for name, error in errors.items():
            print(f"  {name}: {error.message}")
        failures += len(errors)
        if options.check:
            failures += count_different(requests, profiles)
        elif not errors:
            imported = {name.partition(".")[0] for name in installed_imports(model)}
            print(f"  wrote {write_kept(model, profiles.values(), {*imported, *OWN_PACKAGES})}")
    sys.exit(1 if failures else 0)


def requests_by_model(records: Sequence[Path]) -> dict[Path, list[ProfileRequest]]:
    """Return what predicting the records takes, by the model files beside them."""
    asked: list[ProfileRequest] = []

    def note(requests: Sequence[ProfileRequest]) -> dict[str, Profile | GpuplanError]:
        asked.extend(requests)
        return {}

    RecordedRuns(records, profiler=note)
    folders = {path.resolve().parent for path in records}
    found: dict[Path, list[ProfileRequest]] = defaultdict(list)
    for request in asked:
        if request.path.parent in folders:
            found[request.path].append(request)
    return found


def trace(
    requests: Sequence[ProfileRequest],
) -> tuple[dict[str, Profile], dict[str, GpuplanError]]:
    """Return the Profiles, and the errors, by the key of the request."""
    made = trace_all(requests)
    profiles = {key: one for key, one in made.items() if isinstance(one, Profile)}
    errors = {key: one for key, one in made.items() if isinstance(one, GpuplanError)}
    return profiles, errors


def count_different(requests: Sequence[ProfileRequest], profiles: dict[str, Profile]) -> int:
    """Return how many kept Profiles are not those that were traced now, and print each."""
    different = [
        request
        for request in requests
        if request.key in profiles
        and find_kept(request.path, request.params, request.numerics) != profiles[request.key]
    ]
    for request in different:
        print(f"  {request.path.name} {dict(request.params)}: not what is kept")
    return len(different)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("records", nargs="*", type=Path, default=list(RECORDS))
    parser.add_argument("--check", action="store_true", help="compare with what is kept")
    return parser.parse_args()


if __name__ == "__main__":
    main()
