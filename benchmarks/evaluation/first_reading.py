"""The published records as they were first written down, from the pages of their sources alone.

Later they were compared with the configurations of the programs that ran, and corrected. A person
who plans a run, or writes one down, knows as much of its software as a first reading does. What was
measured is as it is known today.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuplan.planner.software.versions import CHECKED_SOFTWARE

from .published_records import OPEN_RECORDS, PUBLISHED

FIRST_READING = PUBLISHED / "first_reading.jsonl"
"""A line for each record that reads otherwise today: {"id": …, "fields": what it had}."""


@contextmanager
def first_readings() -> Iterator[list[Path]]:
    """Yield files with all open records as first written, beside the model files they name."""
    fields = _first_fields()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in PUBLISHED.glob("*.py"):
            shutil.copy(model, folder)
        for kept in PUBLISHED.glob("*.profiles.jsonl.xz"):
            shutil.copy(kept, folder)
        yield [_written(path, folder, fields) for path in OPEN_RECORDS]


def _first_fields() -> dict[str, dict[str, Any]]:
    lines = FIRST_READING.read_text(encoding="utf-8").splitlines()
    return {one["id"]: one["fields"] for one in map(json.loads, lines)}


def _written(path: Path, folder: Path, fields: dict[str, dict[str, Any]]) -> Path:
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    first = folder / path.name
    first.write_text(
        "".join(json.dumps(_as_first(one, fields.get(one["id"], {}))) + "\n" for one in records),
        encoding="utf-8",
    )
    return first


def _as_first(record: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the fields it had; a field that it had not is taken away."""
    changed = {**record, **fields}
    features = [name for name in changed.get("features") or () if name != CHECKED_SOFTWARE]
    changed["features"] = features or None
    return {name: value for name, value in changed.items() if value is not None}
