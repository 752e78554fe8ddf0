"""The published records as they were first written down, for intervals of what nobody checked."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from gpuplan.planner.software.versions import CHECKED_SOFTWARE
from gpuplan.profiles.records import read_records

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
first_reading = importlib.import_module("evaluation.first_reading")


def by_id(paths):
    return {record.id: record for path in paths for record in read_records(path)}


def test_every_record_is_read_as_it_was_first_written():
    today = by_id(first_reading.OPEN_RECORDS)
    with first_reading.first_readings() as paths:
        first = by_id(paths)
        assert all((path.parent / "timm_model.py").exists() for path in paths)
    assert first.keys() == today.keys()
    assert not any(CHECKED_SOFTWARE in record.features for record in first.values())
    assert sum(CHECKED_SOFTWARE in record.features for record in today.values()) > 1000
    assert all(first[name].measured == record.measured for name, record in today.items())

    lines = first_reading.FIRST_READING.read_text(encoding="utf-8").splitlines()
    changed = {one["id"]: one["fields"] for one in map(json.loads, lines)}
    for name, fields in changed.items():
        assert fields
        for field in fields.keys() & {"date", "recompute", "micro_batch", "grad_accum", "model"}:
            assert getattr(first[name], field) == fields[field], (name, field)
    same = today.keys() - changed.keys()
    assert all(first[name].date == today[name].date for name in same)


@pytest.mark.parametrize("name", ["records", "other_kinds", "memory", "usual_jobs", "more_jobs"])
def test_runs_that_nothing_is_fitted_to_are_in_no_other_file(name):
    unseen = read_records(first_reading.PUBLISHED / "unseen" / f"{name}.jsonl")
    fitted = by_id(first_reading.OPEN_RECORDS)
    assert not {record.id for record in unseen} & fitted.keys()
    assert not any(CHECKED_SOFTWARE in record.features for record in unseen)
    sources = {record.source_group for record in fitted.values()}
    assert not {record.source_group for record in unseen} & sources
