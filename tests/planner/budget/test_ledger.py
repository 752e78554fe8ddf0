"""The ledger: rows exact to the cent, whose sums are those of the runs."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuplan.planner.budget.fixed_rows import IdlePrice
from gpuplan.planner.budget.ledger import ledger, run_lines, total_usd
from gpuplan.planner.budget.limits import limit_checks
from gpuplan.planner.budget.money import rounded_usd
from gpuplan.planner.budget.planned import RunLine
from gpuplan.planner.budget.project.months import Month
from gpuplan.planner.budget.schedule import too_late
from gpuplan.planner.budget.sums import (
    months_of,
    owner_limits,
    sums_by,
    sums_by_month,
)
from tests.support.projects import (
    make_books,
    make_planned,
    make_project,
    make_run_cost,
    project_with,
)

IDLE = IdlePrice(usd_per_hour=Decimal("1.5"), accelerator="A10G", region="us-east-1")


def total(**experiment) -> Decimal:
    return total_usd(ledger(make_books(project_with(**experiment))))


def test_a_run_costs_what_its_plan_says() -> None:
    assert total() == Decimal("20.00")


def test_seeds_times_settings_of_the_grid_are_runs() -> None:
    assert total(runs={"seeds": 3, "grid": {"lr": [1, 2]}}) == Decimal("120.00")


def test_random_draws_replace_the_grid() -> None:
    assert total(runs={"seeds": 2, "random": 5, "grid": {"lr": [1, 2, 3]}}) == Decimal("200.00")


def test_repetitions_are_counted_in_their_months() -> None:
    rows = ledger(make_books(project_with(every="quarter", times=2)))
    assert {str(row.month) for row in rows} == {"2027-01", "2027-04"}
    assert total_usd(rows) == Decimal("40.00")


def test_failed_runs_cost_what_they_got_to_and_a_start() -> None:
    # f / (1 - f) = 1/3 attempts for a run, half of 9 h of training and a whole start.
    again = total(retry={"failed_share": "25%", "mean_progress_at_failure": "50%"})
    assert again - total() == pytest.approx(Decimal("3.67"), abs=Decimal("0.01"))


def test_runs_stopped_early_save_their_training_but_not_their_start() -> None:
    # Half of the runs end at 20 %: 60 % of 9 h of training, and one hour of start.
    assert total(stop_early={"share": "50%", "at_progress": "20%"}) == Decimal("12.80")


def test_development_is_a_multiple_of_everything_else() -> None:
    assert total(development=2) == Decimal("60.00")


@pytest.mark.parametrize(
    ("fields", "usd"),
    [
        ({}, "5.00"),
        ({"development": 2}, "15.00"),
        # Of 10 h one is the start. Half of the runs end at 20 %: 1 + 0.6 × 9 h.
        ({"stop_early": {"share": "50%", "at_progress": "20%"}}, "3.20"),
        # One attempt for three runs fails half-way, after 1 + 4.5 h.
        ({"retry": {"failed_share": "25%", "mean_progress_at_failure": "50%"}}, "5.92"),
    ],
)
def test_disks_are_paid_while_machines_are_there(fields: dict[str, object], usd: str) -> None:
    usual = make_run_cost()
    disks = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=Decimal(5))
    cost = replace(usual, lines=(*usual.lines, disks))
    rows = ledger(make_books(project_with(**fields), a=cost))
    assert total_usd(row for row in rows if row.kind == "storage") == Decimal(usd)


def test_evaluation_is_a_share_of_the_training_time() -> None:
    assert total(eval="10%") == Decimal("21.80")


def test_tax_stands_behind_what_it_is_on() -> None:
    books = make_books(a=make_run_cost(tax="0.2"))
    rows = ledger(books)
    assert total_usd(rows) == Decimal("24.00")
    assert [row.usd for row in rows if row.kind == "tax"] == [Decimal("4.00")]


def test_prices_follow_the_trend_of_the_project() -> None:
    project = make_project(
        price_trend="-10%",
        months=24,
        experiments={
            "a": {"model": "a.py", "tokens": "1B", "start": "2028-01"},
        },
    )
    assert total_usd(ledger(make_books(project))) == Decimal("18.00")


def test_what_is_signed_does_not_follow_the_trend() -> None:
    later = {"model": "a.py", "tokens": "1B", "start": "2028-01"}
    project = make_project(price_trend="-10%", months=24, experiments={"a": later})
    signed = make_run_cost(is_price_agreed=True)
    assert total_usd(ledger(make_books(project, a=signed))) == Decimal("20.00")


def test_idle_machines_follow_the_trend_too() -> None:
    idle = [{"provider": "aws", "instance": "g5.xlarge", "hours_per_month": 100}]
    project = make_project(price_trend="-10%", months=13, idle=idle)
    rows = [row for row in ledger(replace(make_books(project), idle=(IDLE,))) if row.kind == "idle"]
    assert rows[0].usd == Decimal("150.00")
    assert rows[12].usd == Decimal("135.00")


def test_all_that_is_rented_is_taxed_and_people_are_not() -> None:
    project = make_project(
        months=1,
        idle=[{"provider": "aws", "instance": "g5.xlarge", "hours_per_month": 100}],
        extras=[{"name": "licence", "usd": 50}, {"name": "engineer", "usd": 50, "kind": "people"}],
        storage=[{"name": "data", "gb": 1000, "usd_per_gb_month": "0.02"}],
        egress=[{"name": "to the lab", "gb": 100, "usd_per_gb": "0.09"}],
    )
    books = replace(make_books(project), idle=(IDLE,), tax_percent=Decimal(19))
    rows = [row for row in ledger(books) if row.experiment is None]
    assert [(row.kind, row.usd) for row in rows] == [
        ("storage", Decimal("20.00")),
        ("tax", Decimal("3.80")),
        ("egress", Decimal("9.00")),
        ("tax", Decimal("1.71")),
        ("idle", Decimal("150.00")),
        ("tax", Decimal("28.50")),
        ("extra", Decimal("50.00")),
        ("people", Decimal("50.00")),
    ]


def test_a_run_without_a_price_is_in_no_sum() -> None:
    cost = make_run_cost(usd=None, usd_low=None, usd_high=None, lines=())
    assert ledger(make_books(a=cost)) == ()


def test_storage_is_paid_from_its_first_month_to_the_end_of_the_project() -> None:
    project = make_project(
        storage=[
            {"name": "data", "gb": 1000, "usd_per_gb_month": "0.02", "start": "2027-03"},
            {"name": "logs", "gb": 10, "usd_per_gb_month": "1", "months": 2},
        ]
    )
    rows = [row for row in ledger(make_books(project)) if row.kind == "storage"]
    assert [(str(row.month), row.name) for row in rows] == [
        ("2027-01", "logs"),
        ("2027-02", "logs"),
        ("2027-03", "data"),
        ("2027-04", "data"),
        ("2027-05", "data"),
        ("2027-06", "data"),
    ]
    assert total_usd(rows) == Decimal("100.00")


def test_storage_without_a_price_is_its_list_price_where_there_is_one() -> None:
    named = {"name": "data", "gb": 1000, "provider": "aws"}
    known = make_project(storage=[{**named, "region": "us-east-1"}])
    rows = [row for row in ledger(make_books(known)) if row.kind == "storage"]
    assert rows[0].unit_usd == Decimal("0.023")
    assert rows[0].usd == Decimal("21.42")  # A GB of AWS is 2^30 bytes.
    unknown = ledger(make_books(make_project(storage=[named])))
    assert not [row for row in unknown if row.kind == "storage"]


def test_idle_machines_extras_and_traffic_are_lines_of_the_project() -> None:
    project = make_project(
        months=2,
        idle=[{"provider": "aws", "instance": "g5.xlarge", "hours_per_month": 100, "nodes": 2}],
        extras=[
            {"name": "licence", "usd": 50},
            {"name": "prize", "usd": 10, "month": "2027-02", "owner": "Bo"},
            {"name": "engineer", "usd": "1k", "kind": "people"},
        ],
        egress=[{"name": "to the lab", "gb": 100, "usd_per_gb": "0.09"}],
    )
    rows = ledger(replace(make_books(project), idle=(IDLE,)))
    by_kind = {one.name: one.usd for one in sums_by(rows, lambda row: row.kind)}
    assert by_kind["idle"] == Decimal("600.00")
    assert by_kind["extra"] == Decimal("110.00")
    assert by_kind["people"] == Decimal("2000.00")
    assert by_kind["egress"] == Decimal("9.00")
    by_owner = {one.name: one.usd for one in sums_by(rows, lambda row: row.owner, unnamed="?")}
    assert by_owner["Bo"] == Decimal("10.00")


def test_halves_of_a_cent_are_rounded_up_as_spreadsheets_do() -> None:
    assert rounded_usd(Decimal("0.5"), Decimal("0.01")) == Decimal("0.01")


def test_lines_of_nothing_are_left_out() -> None:
    project = project_with()
    assert {line.kind for line in run_lines(make_planned(project))} == {"start-up", "accelerators"}


@settings(max_examples=60, deadline=None)
@given(
    hours=st.floats(0.01, 5_000),
    price=st.decimals("0.000001", "500", places=6),
    seeds=st.integers(1, 50),
    parallel=st.integers(1, 8),
    failed=st.integers(0, 60),
    development=st.floats(0, 3),
    trend=st.integers(-30, 30),
    start=st.integers(0, 5),
)
def test_every_sum_is_that_of_the_rows_to_the_cent(
    hours, price, seeds, parallel, failed, development, trend, start
) -> None:
    project = make_project(
        price_trend=f"{trend}%",
        extras=[{"name": "licence", "usd": "33.33"}],
        experiments={
            "a": {
                "model": "a.py",
                "tokens": "1B",
                "start": str(Month(2027, 1).plus(start)),
                "parallel": parallel,
                "development": development,
                "runs": {"seeds": seeds},
                "retry": {"failed_share": f"{failed}%"},
            }
        },
    )
    books = make_books(project, a=make_run_cost(hours=hours, usd_per_hour=str(price)))
    assume(too_late(books.spans()) is None)  # A report of it is refused.
    rows = ledger(books)
    whole = total_usd(rows)
    assert whole == sum((row.usd for row in rows), Decimal(0))
    assert all(row.usd == rounded_usd(row.quantity, row.unit_usd) for row in rows)
    assert all(row.usd.as_tuple().exponent == -2 for row in rows)
    for key in ("kind", "provider", "owner", "experiment"):
        found = sums_by(rows, lambda row, key=key: getattr(row, key), unnamed="none")
        assert sum((one.usd for one in found), Decimal(0)) == whole
    months = months_of(project, rows)
    by_month = sums_by_month(rows, months, None)
    assert sum((one.usd for one in by_month), Decimal(0)) == whole
    assert [one.name for one in by_month] == [str(month) for month in months]


def test_what_belongs_to_no_experiment_is_the_projects_owners() -> None:
    fixed = {
        "storage": [{"name": "data", "gb": "100", "usd_per_gb_month": "0.02"}],
        "egress": [{"name": "results", "gb": "100", "usd_per_gb": "0.09"}],
        "extras": [{"name": "licence", "usd": "10"}],
    }
    rows = ledger(make_books(make_project(owner="Bo", **fixed)))
    assert {row.owner for row in rows if row.experiment is None} == {"Bo"}


def test_the_limit_of_an_owner_holds_however_the_name_is_written() -> None:
    project = make_project(
        experiments={"a": {"model": "a.py", "tokens": "1B", "owner": "Team A"}},
        limits={"owners": {"team-a": "5"}},
    )
    books = make_books(project)
    rows = ledger(books)
    (check,) = limit_checks(project, rows, (), books.planned, Decimal(0))
    assert (check.usd, check.is_over) == (Decimal("20.00"), True)
    assert owner_limits(project, rows) == {"Team A": Decimal(5)}


def test_owners_of_other_alphabets_are_told_apart() -> None:
    project = make_project(
        experiments={"a": {"model": "a.py", "tokens": "1B", "owner": "Борис"}},
        limits={"owners": {"Зина": "5"}},
    )
    books = make_books(project)
    (check,) = limit_checks(project, ledger(books), (), books.planned, Decimal(0))
    assert check.usd == 0
