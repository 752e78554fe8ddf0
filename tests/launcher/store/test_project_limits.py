"""What the limits of a project's file count, what they refuse, and what is said of it."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fake_engine import START, Clock
from hypothesis import given
from hypothesis import strategies as st
from launch_records import make_record

from gpuplan.catalog.errors import LimitError
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import Attempt, LaunchRecord
from gpuplan.launcher.store.launches import Ledger
from gpuplan.launcher.store.project_limits import (
    LimitStanding,
    ProjectFile,
    refuse_exceeded,
    standings,
    warnings,
)
from gpuplan.launcher.store.spending_limits import SpendingLimits, refuse_beyond
from gpuplan.planner.budget.project.lines import BudgetLimits

OTHER = "net-20261121-120000-0dd0dd"


def make_file(path: Path = Path("gpuplan.yaml"), **limits: Any) -> ProjectFile:
    lines = {"run": 11, "month": 12, "total": 13, "owners.Ann": 14}
    return ProjectFile(
        name="Net", path=path, limits=BudgetLimits.model_validate(limits), lines=lines
    )


def ended(record: LaunchRecord, usd: str) -> LaunchRecord:
    attempt = Attempt(number=1, spot=False, asked_at=START, counted_usd=Decimal(usd))
    return record.model_copy(update={"state": "ended", "attempts": (attempt,)})


def stands(folder: Path, *others: LaunchRecord, **limits: Any) -> dict[str, LimitStanding]:
    found = standings(make_record(folder, Clock()), others, make_file(**limits), now=START)
    return {one.name: one for one in found}


def test_every_limit_has_what_is_spent_open_and_added_and_its_line(tmp_path: Path) -> None:
    still = make_record(tmp_path, Clock(), run=OTHER)
    done = ended(make_record(tmp_path, Clock(), run="net-1"), "25.50")
    limits = {"run": 50, "month": 200, "total": 145.5, "owners": {"Ann": 145, "Bob": 1}}
    found = stands(tmp_path, still, done, **limits)
    assert list(found) == ["run", "month 2026-11", "owner Ann", "total"]
    month = found["month 2026-11"]
    assert (month.spent_usd, month.open_usd, month.adds_usd) == (Decimal("25.50"), 60, 60)
    assert (month.total_usd, month.is_over, month.place) == (
        Decimal("145.50"),
        False,
        "gpuplan.yaml:12",
    )
    run = found["run"]
    assert (run.spent_usd, run.open_usd, run.total_usd, run.is_over) == (0, 0, 60, True)
    assert found["owner Ann"].is_over and found["owner Ann"].line == 14
    assert found["total"].total_usd == found["total"].limit_usd and not found["total"].is_over


@pytest.mark.parametrize(
    ("changes", "is_counted"),
    [
        ({}, True),
        ({"project": "NET"}, True),
        ({"project": "another"}, False),
        ({"project": "another", "project_file": "/study/gpuplan.yaml"}, True),
        ({"project": "another", "plan": "aaaaaaaaaa"}, True),
        ({"project": "another", "plan": "aaaaaaaaaa", "project_file": "/b.yaml"}, False),
    ],
)
def test_which_launches_are_the_projects(
    tmp_path: Path, changes: dict[str, Any], is_counted: bool
) -> None:
    file = make_file(Path("/study/gpuplan.yaml"), total=1000)
    file = ProjectFile(**{**vars(file), "plans": frozenset({"aaaaaaaaaa"})})
    other = make_record(tmp_path, Clock(), run=OTHER, **changes)
    (found,) = standings(make_record(tmp_path, Clock()), [other], file, now=START)
    assert found.open_usd == (60 if is_counted else 0)


@pytest.mark.parametrize(
    ("name", "other", "is_counted"),
    [
        ("視覚", "言語", False),
        ("की", "कि", False),
        ("視覚 ", "視覚", True),
        ("Straße", "STRASSE", True),
    ],
)
def test_names_that_have_the_same_label_are_not_one_project(
    tmp_path: Path, name: str, other: str, is_counted: bool
) -> None:
    file = ProjectFile(**{**vars(make_file(total=1000)), "name": name})
    launch = make_record(tmp_path, Clock(), run=OTHER, project=other)
    wanted = make_record(tmp_path, Clock(), project=name)
    (found,) = standings(wanted, [launch], file, now=START)
    assert found.open_usd == (60 if is_counted else 0)


def test_another_month_and_another_owner_are_counted_in_the_total_alone(tmp_path: Path) -> None:
    attempt = Attempt(
        number=1, spot=False, asked_at=START - timedelta(days=30), counted_usd=Decimal(25)
    )
    facts = {"state": "ended", "attempts": (attempt,)}
    before = make_record(tmp_path, Clock(), run=OTHER, owner="eve", **facts)
    bobs = make_record(tmp_path, Clock(), run="net-1", owner="bob")
    found = stands(tmp_path, before, bobs, month=1000, total=1000, owners={"Ann": 1000})
    assert [one.open_usd for one in found.values()] == [60, 0, 60]
    assert [one.spent_usd for one in found.values()] == [0, 0, 25]


def test_a_launch_that_goes_on_adds_what_it_has_not_spent_yet(tmp_path: Path) -> None:
    again = ended(make_record(tmp_path, Clock()), "45")
    run, total = standings(again, [again], make_file(run=59, total=60), now=START)
    assert (run.spent_usd, run.adds_usd, run.total_usd, run.is_over) == (45, 15, 60, True)
    assert (total.total_usd, total.is_over) == (60, False)


def test_fail_refuses_and_says_what_was_spent_what_this_adds_and_how_to_go_on(
    tmp_path: Path,
) -> None:
    done = ended(make_record(tmp_path, Clock(), run="net-1"), "25.50")
    still = make_record(tmp_path, Clock(), run=OTHER)
    found = stands(tmp_path, still, done, month=100, on_exceed="fail")
    with pytest.raises(LimitError) as refused:
        refuse_exceeded(found.values())
    assert refused.value.exit_code == 4
    assert refused.value.message == (
        "Over the limit of month 2026-11, $100.00 (gpuplan.yaml:12): $25.50 is spent, open"
        " launches may cost $60.00 more, and this one adds $60.00 at worst: $145.50 in all."
    )
    assert refused.value.fix == (
        "hold this launch to what is left with --max-cost 14.50, or end what is open"
        " (`gpuplan status`), or raise `month` at gpuplan.yaml:12, or write `on_exceed: warn`"
        " there."
    )


def test_nothing_left_is_no_max_cost(tmp_path: Path) -> None:
    done = ended(make_record(tmp_path, Clock(), run="net-1"), "100")
    found = stands(tmp_path, done, owners={"Ann": 100}, on_exceed="fail")
    with pytest.raises(LimitError) as refused:
        refuse_exceeded(found.values())
    assert (
        refused.value.fix == "raise `owners` at gpuplan.yaml:14, or write `on_exceed: warn` there."
    )


def test_warn_says_it_and_refuses_nothing(tmp_path: Path) -> None:
    wanted = make_record(tmp_path, Clock())
    file = make_file(run=50, total=1000)
    found = standings(wanted, [], file, now=START)
    refuse_exceeded(found)
    refuse_beyond(wanted, [], SpendingLimits(file=file), now=START)
    assert warnings(found) == [
        "Over the limit of run, $50.00 (gpuplan.yaml:11): this launch may cost $60.00 at worst."
    ]


def test_an_open_launch_that_nothing_bounds_is_refused_or_said_to_be_unknown(
    tmp_path: Path,
) -> None:
    still = make_record(tmp_path, Clock(), run=OTHER, reserved_usd=None)
    warned = stands(tmp_path, still, total=1000, run=100)
    total, run = warned["total"], warned["run"]
    assert (total.total_usd, total.is_over, total.open_unknown) == (None, None, (OTHER,))
    assert (run.total_usd, run.is_over, run.open_unknown) == (60, False, ())
    (said,) = warnings(warned.values())
    assert f"nothing bounds what {OTHER} may still cost" in said
    with pytest.raises(LimitError, match="nothing bounds") as refused:
        refuse_exceeded(stands(tmp_path, still, total=1000, on_exceed="fail").values())
    assert f"gpuplan stop {OTHER}" in (refused.value.fix or "")


def test_a_job_of_unknown_length_is_refused_or_said_to_be_unknown(tmp_path: Path) -> None:
    unknown = make_record(tmp_path, Clock(), reserved_usd=None)
    (found,) = standings(unknown, [], make_file(total=1000), now=START)
    assert (found.adds_usd, found.total_usd, found.is_over) == (None, None, None)
    assert "is not known" in warnings([found])[0]
    with pytest.raises(LimitError, match="how long this job runs is not known"):
        refuse_beyond(
            unknown, [], SpendingLimits(file=make_file(total=1000, on_exceed="fail")), now=START
        )
    # A limit of somebody else's is none of this launch.
    bobs = make_file(owners={"Bob": 1}, on_exceed="fail")
    refuse_beyond(unknown, [], SpendingLimits(file=bobs), now=START)


def test_the_store_looks_again_when_it_keeps_a_launch(tmp_path: Path) -> None:
    clock = Clock()
    ledger = Ledger(Store(tmp_path / "store.sqlite3"), now=clock)
    limits = SpendingLimits(file=make_file(total=100, on_exceed="fail"))
    ledger.reserve(make_record(tmp_path, clock), limits)
    with pytest.raises(LimitError, match=r"limit of total, \$100\.00 \(gpuplan\.yaml:13\)"):
        ledger.reserve(make_record(tmp_path, clock, run=OTHER), limits)
    assert len(ledger.all()) == 1


AMOUNTS = st.decimals("0", "500", places=2)
LIMITS = st.decimals("0.01", "1500", places=2)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, st.booleans()), max_size=5), AMOUNTS, LIMITS)
def test_what_is_spent_open_and_added_is_what_is_committed(
    others: list[tuple[Decimal, Decimal, bool]], adds: Decimal, limit: Decimal
) -> None:
    folder = Path("/tmp")
    made = [_kept(folder, i, *one) for i, one in enumerate(others)]
    wanted = _kept(folder, 99, Decimal(0), adds, True)
    (found,) = standings(wanted, made, make_file(total=limit), now=START)
    committed = sum((max(usd, worst) if is_open else usd for usd, worst, is_open in others), adds)
    assert found.total_usd == committed == found.spent_usd + found.open_usd + adds
    assert found.is_over == (committed > limit)


def _kept(folder: Path, i: int, usd: Decimal, worst: Decimal, is_open: bool) -> LaunchRecord:
    attempt = Attempt(number=1, spot=False, asked_at=START, counted_usd=usd)
    return LaunchRecord(
        **{
            **PLAIN,
            "run": f"net-{i}",
            "folder": str(folder),
            "state": "running" if is_open else "ended",
            "reserved_usd": worst,
            "attempts": (attempt,),
        }
    )


PLAIN: dict[str, Any] = {
    "created_at": START,
    "plan": "24d0a27b1e",
    "title": "",
    "model": "net",
    "project": "net",
    "owner": "ann",
    "cluster": "gp",
    "managed": False,
    "nodes": 1,
    "places": (),
    "usd_expected": None,
    "usd_low": None,
    "usd_high": None,
    "usd_worst": None,
    "results": "",
    "out_dir": "",
    "pid": 1,
    "host": "",
}


def test_launches_are_read_without_what_only_a_project_file_needs() -> None:
    code = (
        "import sys, gpuplan.launcher.store.launches\n"
        "print(sorted(m for m in sys.modules if m.startswith('gpuplan.planner.budget.project.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "['gpuplan.planner.budget.project.on_exceed']\n"
