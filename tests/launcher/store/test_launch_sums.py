"""Launches summed up by the store's index: the same as their records say, and fast."""

from __future__ import annotations

import csv
import io
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from fake_engine import Clock
from launch_records import make_record

from gpuplan.cli.main import run
from gpuplan.launcher.store.accounting import node_hours, spent_in_usd, spent_usd
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import Attempt, LaunchRecord, PricedPlace
from gpuplan.launcher.store.launch_rows import COLUMNS, row_of
from gpuplan.launcher.store.launch_sums import BYS, By, Wanted, launch_sums
from gpuplan.launcher.store.launches import Ledger
from gpuplan.launcher.store.migrations import MIGRATIONS
from gpuplan.launcher.store.spending_limits import SpendingLimits

NOW = datetime(2027, 3, 20, tzinfo=UTC)
MANY = 100_000
LONGEST_S = 0.3


def record(folder: Path, number: int, **changes) -> LaunchRecord:
    """Return one of many launches: 4 owners, 3 projects, 2 providers, hourly since January."""
    at = datetime(2027, 1, 1, tzinfo=UTC) + timedelta(hours=number % 1800)
    infra = ("aws/us-east-1", "gcp/us-central1")[number % 2]
    attempt = Attempt(
        number=1,
        spot=False,
        asked_at=at,
        infra=infra,
        began_at=at,
        ended_at=at + timedelta(minutes=1 + number % 50),
        usd_per_hour=Decimal("36.12"),
        is_bound=number % 7 == 0,
        outcome="succeeded",
    )
    facts = {
        "run": f"net-{number:06d}",
        "cluster": f"gp-{number:06d}",
        "created_at": at,
        "owner": f"owner-{number % 4}",
        "project": f"project-{number % 3}",
        "accelerator": ("H100-80GB-SXM", None)[number % 2],
        "places": (PricedPlace(infra=infra, usd_per_hour=Decimal(36)),),
        "state": "ended",
        "outcome": ("succeeded", "failed")[number % 5 == 0],
        "attempts": (attempt,),
    }
    return make_record(folder, Clock(at)).model_copy(update={**facts, **changes})


def keep(store: Store, records: list[LaunchRecord]) -> None:
    keep_rows(store, (row_of(one) for one in records))


def keep_rows(store: Store, rows: Iterable[Mapping[str, object]]) -> None:
    marks = ", ".join(f":{name}" for name in COLUMNS)
    with store.transaction("IMMEDIATE") as connection:
        connection.executemany(
            f"INSERT INTO launches ({', '.join(COLUMNS)}) VALUES ({marks})",
            rows,
        )


@pytest.fixture
def records(tmp_path: Path) -> list[LaunchRecord]:
    made = [record(tmp_path, i) for i in range(60)]
    made[3] = made[3].model_copy(update={"state": "running", "outcome": None})
    still = made[3].attempts[0].model_copy(update={"ended_at": None, "outcome": None})
    made[3] = made[3].model_copy(update={"attempts": (still,)})
    made[4] = made[4].model_copy(update={"outcome": "cancelled", "attempts": ()})
    return made


@pytest.mark.parametrize("by", BYS)
def test_sums_are_those_of_the_records(by, records: list[LaunchRecord]) -> None:
    keep(Store(), records)
    found = launch_sums(Store(), Wanted(), by, now=NOW)
    assert sum(one.launches for one in found) == len(records)
    assert sum(one.open for one in found) == 1
    assert sum(one.spent_usd for one in found) == sum(spent_usd(one, now=NOW) for one in records)
    hours = sum(node_hours(one, now=NOW) for one in records)
    assert sum(one.node_hours for one in found) == pytest.approx(hours)


def test_wanted_launches_alone_are_summed_up(records: list[LaunchRecord]) -> None:
    keep(Store(), records)
    since = datetime(2027, 1, 2, tzinfo=UTC)
    # A name in another spelling is the same one, as in limits.
    wanted = Wanted(owner="owner-1", project="Project 0", outcomes=("failed",), since=since)
    (one,) = launch_sums(Store(), wanted, "owner", now=NOW)
    meant = [
        r
        for r in records
        if (r.owner, r.project, r.outcome) == ("owner-1", "project-0", "failed")
        and r.created_at >= since
    ]
    assert one.launches == len(meant) > 0
    assert one.spent_usd == sum(spent_usd(r, now=NOW) for r in meant)


def test_open_launches_are_an_outcome(records: list[LaunchRecord]) -> None:
    keep(Store(), records)
    (one,) = launch_sums(Store(), Wanted(outcomes=("open",)), "outcome", now=NOW)
    assert (one.name, one.launches, one.open) == ("open", 1, 1)


def test_a_launch_is_summed_up_when_it_ends(tmp_path: Path) -> None:
    clock = Clock(NOW - timedelta(hours=2))
    ledger = Ledger(Store(), now=clock)
    made = make_record(tmp_path, clock)
    ledger.reserve(made, SpendingLimits())
    (one,) = launch_sums(Store(), Wanted(), "owner", now=NOW)
    assert (one.open, one.spent_usd) == (1, 0)
    ended = record(tmp_path, 11, run=made.run, owner="bob").model_dump(exclude={"run", "cluster"})
    ledger.update(
        made.run,
        lambda now: LaunchRecord(**{**ended, "run": now.run, "cluster": now.cluster}),
        what="ended",
    )
    (one,) = launch_sums(Store(), Wanted(), "owner", now=NOW)
    assert (one.name, one.open, one.spent_usd) == ("bob", 0, Decimal("7.22"))


def test_launches_kept_by_an_earlier_version_are_summed_up(records: list[LaunchRecord]) -> None:
    keep(Store(), records)
    with closing(sqlite3.connect(Store().path)) as connection, connection:
        empty = ", ".join(f"{name} = NULL" for name in COLUMNS[-4:] if name != "outcome")
        connection.execute(f"UPDATE launches SET {empty}")
    found = launch_sums(Store(), Wanted(), "provider", now=NOW)
    assert sum(one.spent_usd for one in found) == sum(spent_usd(one, now=NOW) for one in records)


def test_the_command_sums_up(records: list[LaunchRecord], capsys) -> None:
    keep(Store(), records)
    assert run(["history", "--by", "owner"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["owner", "launches", "open", "node", "hours", "spent"]
    assert len(lines) == 1 + 4 + 1 and lines[-1].startswith("total")
    assert run(["history", "--by", "accelerator", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["accelerator"] for row in rows} == {"H100-80GB-SXM", ""}
    assert run(["history", "--by", "month", "--format", "json"]) == 0
    assert '"name": "2027-01"' in capsys.readouterr().out
    assert run(["history", "net-000001", "--by", "owner"]) == 2
    assert "leave out one of the two" in capsys.readouterr().err
    assert run(["history", "--by", "colour"]) == 2


def test_a_launch_that_cannot_be_read_is_named(records: list[LaunchRecord], capsys) -> None:
    keep(Store(), records)
    with closing(sqlite3.connect(Store().path)) as connection, connection:
        row = ("broken-1", "2026", "running", "gp-broken", "{broken")
        columns = "run, created_at, state, cluster, record"
        connection.execute(f"INSERT INTO launches ({columns}) VALUES (?, ?, ?, ?, ?)", row)
    assert run(["history", "--by", "owner"]) == 0
    said = capsys.readouterr()
    assert "broken-1 is left out" in said.err and said.err.count("left out") == 1
    assert said.out.splitlines()[-1].split()[:2] == ["total", "60"]


def test_a_name_in_csv_is_no_formula(tmp_path: Path, capsys) -> None:
    keep(Store(), [record(tmp_path, 1, owner="=1+1")])
    assert run(["history", "--by", "owner", "--format", "csv"]) == 0
    assert "'=1+1," in capsys.readouterr().out


@pytest.mark.slow
def test_sums_of_100_000_launches_take_less_than_a_third_of_a_second(tmp_path: Path) -> None:
    one = record(tmp_path, 0)
    # The columns are what is summed up: the record beside them is that of one launch in all rows.
    row = row_of(one)
    keep_rows(
        Store(),
        (
            {
                **row,
                "run": f"net-{i:06d}",
                "cluster": f"gp-{i:06d}",
                "owner": f"owner-{i % 50}",
                "project": f"project-{i % 30}",
                "created_at": (NOW - timedelta(minutes=5 * i)).isoformat(),
            }
            for i in range(MANY)
        ),
    )
    took: dict[str, float] = {}
    for by in BYS:
        for wanted in (Wanted(), Wanted(since=NOW - timedelta(days=7)), Wanted(owner="owner-3")):
            took[f"{by} {wanted}"] = min(_cpu_s(wanted, by) for _ in range(2))
    print({name: round(seconds, 3) for name, seconds in took.items()})
    assert max(took.values()) < LONGEST_S


def test_a_list_that_is_cut_has_the_totals_of_all(records: list[LaunchRecord], capsys) -> None:
    keep(Store(), records)
    assert run(["history", "--limit", "2", "--owner", "owner-1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    meant = [one for one in records if one.owner == "owner-1"]
    spent = sum(spent_usd(one, now=NOW) for one in meant)
    assert len(lines) == 1 + 2 + 1
    assert lines[-1].startswith(f"{len(meant)} launches") and f"${spent:,.2f}" in lines[-1]


def _cpu_s(wanted: Wanted, by: By) -> float:
    """Return the processor time of sums: others on the machine do not lengthen it."""
    begin = time.process_time()
    assert launch_sums(Store(), wanted, by, now=NOW)
    return time.process_time() - begin


def test_a_month_has_what_was_spent_in_it_as_its_limit_counts(tmp_path: Path) -> None:
    """One of 40 hours, 30 of them in January; one made in January and resumed in February."""
    at = datetime(2027, 1, 30, 18, tzinfo=UTC)
    long = record(tmp_path, 0).attempts[0]
    long = long.model_copy(update={"asked_at": at, "began_at": at, "is_bound": False})
    long = long.model_copy(update={"ended_at": at + timedelta(hours=40)})
    again = long.model_copy(
        update={
            "number": 2,
            "asked_at": at + timedelta(days=9),
            "began_at": at + timedelta(days=9),
            "ended_at": at + timedelta(days=9, hours=1),
            "is_bound": True,
        }
    )
    short = long.model_copy(update={"ended_at": at + timedelta(hours=1)})
    made = [
        record(tmp_path, 1, created_at=at, attempts=(long,)),
        record(tmp_path, 2, created_at=at, attempts=(short, again)),
        record(tmp_path, 3, created_at=at, attempts=(short,)),
    ]
    keep(Store(), made)
    for _ in range(2):
        january, february = launch_sums(Store(), Wanted(), "month", now=NOW)
        assert (january.name, january.launches, february.name, february.launches) == (
            *("2027-01", 3),
            *("2027-02", 0),
        )
        assert (january.is_bound, february.is_bound) == (False, True)
        assert january.node_hours == pytest.approx(30 + 1 + 1)
        assert february.node_hours == pytest.approx(10 + 1)
        for one in (january, february):
            assert one.spent_usd == sum(spent_in_usd(r, one.name or "", now=NOW) for r in made)
        whole = sum(spent_usd(one, now=NOW) for one in made)
        assert january.spent_usd + february.spent_usd == whole
        with Store().transaction("IMMEDIATE") as connection:  # As an earlier version left them.
            connection.execute("UPDATE launches SET ended_microusd = NULL, in_one_month = NULL")


def test_a_store_of_before_months_were_told_apart_tells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2027, 1, 31, 23, tzinfo=UTC)
    over = (
        record(tmp_path, 0)
        .attempts[0]
        .model_copy(update={"asked_at": at, "began_at": at, "ended_at": at + timedelta(hours=4)})
    )
    made = [record(tmp_path, 1), record(tmp_path, 2, created_at=at, attempts=(over,))]
    new = ("is_unknown", "in_one_month")
    with monkeypatch.context() as earlier:
        earlier.setattr("gpuplan.launcher.store.migrations.MIGRATIONS", MIGRATIONS[:7])
        rows = [{k: v for k, v in row_of(one).items() if k not in new} for one in made]
        with Store().transaction("IMMEDIATE") as connection:
            for row in rows:
                names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
                connection.execute(f"INSERT INTO launches ({names}) VALUES ({marks})", row)
    found = {one.name: one.spent_usd for one in launch_sums(Store(), Wanted(), "month", now=NOW)}
    assert found == {
        month: sum(spent_in_usd(one, month, now=NOW) for one in made)
        for month in ("2027-01", "2027-02")
    }
    assert found["2027-02"] > 100
