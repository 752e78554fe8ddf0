"""One launch whose record is damaged hides no other, whatever is asked of the store."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from fake_engine import Clock, FakeEngine
from launch_records import make_context, make_record

from gpuplan.launcher.lifecycle.transitions import begin
from gpuplan.launcher.store.estimates import StoreError
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.launcher.store.launches import Ledger
from gpuplan.launcher.store.spending_limits import SpendingLimits

TORN, WHOLE = "net-20261101-100000-0000aa", "net-20261101-100000-0000bb"
Ask = Callable[[Ledger, LaunchRecord], list[LaunchRecord]]
ASKED: dict[str, Ask] = {
    "open": lambda ledger, _one: ledger.open(),
    "workload": lambda ledger, one: ledger.of_workloads([one.workload or ""]),
    "project": lambda ledger, one: ledger.of_project(one.project),
    "file": lambda ledger, one: ledger.of_project("another", one.project_file),
    "plan": lambda ledger, one: ledger.of_plans([one.plan]),
}


def torn_store(folder: Path, change: str) -> tuple[Ledger, LaunchRecord]:
    context = make_context(folder, FakeEngine(Clock()))
    record = make_record(folder, Clock(), run=WHOLE)
    record = record.model_copy(update={"workload": "w", "project_file": "/p/gpuplan.yaml"})
    for run in (TORN, WHOLE):
        one = record.model_copy(update={"run": run, "cluster": f"gpuplan-{run}"})
        begin(context, one, SpendingLimits(), spot=False)
    with closing(sqlite3.connect(folder / "store.sqlite3")) as store, store:
        store.execute(change)
    return context.ledger, record


@pytest.mark.parametrize("damage", ["substr(record, 1, 99)", "x'fffe'", "'{}'", "''"])
@pytest.mark.parametrize("asked", ASKED)
def test_the_others_are_found(tmp_path: Path, damage: str, asked: str) -> None:
    change = f"UPDATE launches SET record = {damage} WHERE run = '{TORN}'"
    ledger, record = torn_store(tmp_path, change)
    assert [one.run for one in ASKED[asked](ledger, record)] == [WHOLE]
    assert ledger.unreadable() == [TORN]


@pytest.mark.parametrize("version", ["'{}'", "x'fffe'"])
def test_a_damaged_version_of_the_store_is_named(tmp_path: Path, version: str) -> None:
    ledger, _ = torn_store(tmp_path, f"UPDATE schema_version SET version = {version}")
    with pytest.raises(StoreError, match="own version cannot be read"):
        ledger.all()
