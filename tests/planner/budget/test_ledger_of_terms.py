"""Machines that are bought for a term, or booked as a block, in the ledger."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuplan.planner.budget.ledger import Books, ledger, run_lines, total_usd
from gpuplan.planner.budget.money import rounded_usd
from gpuplan.planner.budget.planned import RunLine
from gpuplan.planner.budget.schedule import too_late
from gpuplan.planner.cost.paid_whole import AFTER_HOURS, FURTHER, UNUSED
from gpuplan.planner.cost.run_cost import UNIT
from tests.support.projects import (
    make_books,
    make_planned,
    make_project,
    make_run_cost,
    project_with,
)


def test_a_term_that_is_bought_for_the_runs_is_paid_whole() -> None:
    cost = make_run_cost(hours=10, usd_per_hour="2", term_hours=100.0)
    rows = ledger(make_books(project_with(runs={"seeds": 3}), a=cost))
    assert total_usd(rows) == Decimal("200.00")
    assert [row.usd for row in rows if row.kind == "commitment"] == [Decimal("140.00")]


def test_runs_that_end_soon_after_their_term_take_the_last_hours_on_demand() -> None:
    """By hand: 102 hours are a term of 100 at $2, and 2 hours at $3.20."""
    cost = make_run_cost(hours=102, usd_per_hour="2", term_hours=100.0)
    cost = replace(cost, above_term_usd=Decimal("1.2"))
    rows = ledger(make_books(project_with(runs={"seeds": 1}, parallel=1), a=cost))
    assert total_usd(rows) == Decimal("206.40")
    (above,) = [row for row in rows if row.kind == "commitment"]
    assert (above.usd, above.unit_usd) == (Decimal("2.40"), Decimal("1.2"))
    # At 170 hours another term costs less.
    cost = replace(make_run_cost(hours=170, term_hours=100.0), above_term_usd=Decimal("1.2"))
    rows = ledger(make_books(project_with(runs={"seeds": 1}, parallel=1), a=cost))
    assert total_usd(rows) == 200 * (cost.hour_usd or 0)


def test_hours_after_a_term_that_cost_less_than_it_are_at_their_own_price() -> None:
    """By hand: 130 hours are a term of 100 at $2, and 30 hours at $1.50."""
    cost = replace(make_run_cost(hours=130, term_hours=100.0), above_term_usd=Decimal("-0.5"))
    rows = ledger(make_books(project_with(parallel=1), a=cost))
    assert total_usd(rows) == Decimal("245.00")
    (after,) = [row for row in rows if row.name == "on demand after the commitment"]
    assert (after.usd, after.unit_usd, after.quantity) == (Decimal(45), Decimal("1.5"), 30)
    # They are hours of the runs, which no other row has.
    assert after.kind == "accelerators"
    assert sum(row.quantity for row in rows) == 130


@pytest.mark.parametrize("percent", [-10, 10, -60, 0])
def test_hours_on_demand_after_a_term_have_the_price_of_their_month(percent: int) -> None:
    """A term of 2,000 h at $5 from January 2028 ends in March; then 10 h at what was $8 in 2027."""
    project = make_project(
        price_trend=f"{percent}%",
        months=24,
        experiments={"a": {"model": "a.py", "tokens": "1B", "start": "2028-01"}},
    )
    cost = replace(
        make_run_cost(hours=2010, usd_per_hour="5", term_hours=2000.0, is_price_agreed=True),
        above_term_usd=Decimal(3),
    )
    rows = ledger(make_books(project, a=cost))
    after = [row for row in rows if row.name in (FURTHER, AFTER_HOURS)]
    assert [(str(row.month), float(row.quantity)) for row in after] == [("2028-03", 10.0)]
    an_hour = (total_usd(rows) - 2000 * 5) / 10
    assert float(an_hour) == pytest.approx(8 * (1 + percent / 100) ** (14 / 12), abs=0.001)


def test_on_demand_after_a_term_only_the_machines_that_run_are_paid() -> None:
    """By hand: three runs of 100 h, two at a time; of the second 100 h one machine's are used."""
    cost = replace(make_run_cost(hours=100, term_hours=150.0), above_term_usd=Decimal("1"))
    rows = ledger(make_books(project_with(runs={"seeds": 3}, parallel=2), a=cost))
    # Two terms of 150 h at $2 each, and 50 h of one machine at $3; a term's rest is 50 h.
    assert total_usd(rows) == Decimal("750.00")
    assert sum(row.usd for row in rows if row.name == "unused commitment") == Decimal("100.00")


@settings(max_examples=80, deadline=None)
@given(
    hours=st.floats(1, 2_000),
    term_h=st.floats(10, 3_000),
    cents=st.integers(1, 50_000),
    share=st.floats(0.05, 2.5),
    seeds=st.integers(1, 12),
    parallel=st.integers(1, 5),
    development=st.floats(0, 2),
    stopped=st.integers(0, 80),
)
def test_no_row_of_a_term_is_negative_and_the_terms_are_paid_whole(
    hours, term_h, cents, share, seeds, parallel, development, stopped
) -> None:
    hour_usd = Decimal(cents) / 100
    above_usd = (hour_usd * (Decimal(share) - 1)).quantize(Decimal("0.000001"))
    cost = make_run_cost(hours=hours, usd_per_hour=str(hour_usd), term_hours=term_h)
    disks = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=Decimal(5))
    cost = replace(cost, lines=(*cost.lines, disks), above_term_usd=above_usd)
    project = project_with(
        runs={"seeds": seeds},
        parallel=parallel,
        development=development,
        stop_early={"share": f"{stopped}%", "at_progress": "20%"},
    )
    books = make_books(project, a=cost)
    assume(too_late(books.spans()) is None)
    rows = ledger(books)
    for row in rows:
        assert row.quantity > 0 and row.unit_usd >= 0 and row.usd >= 0, row
        assert row.usd == rounded_usd(row.quantity, row.unit_usd)
    # Each hour is paid once, and those after the terms at their own price.
    hours_usd = sum((row.usd for row in rows if row.unit == UNIT), Decimal(0))
    used_h = sum(line.quantity for line in run_lines(books.planned[0]) if line.unit == UNIT)
    rest_h = sum(float(row.quantity) for row in rows if row.name == UNUSED)
    after_h = sum(float(row.quantity) for row in rows if row.name in (FURTHER, AFTER_HOURS))
    by_hand = float(hour_usd) * (used_h + rest_h) + float(above_usd) * after_h
    assert float(hours_usd) == pytest.approx(by_hand, abs=0.01 * len(rows) + 0.01)
    # Of a term nothing is left over that is not paid: used or not, it is whole.
    (span,) = books.spans()
    terms = (used_h + rest_h - after_h) / (term_h * span.at_once)
    assert terms == pytest.approx(round(terms), abs=1e-3) or not rest_h


def test_a_capacity_block_is_booked_whole_in_the_month_of_its_first_day() -> None:
    """Two runs of 500 h one after another, each in a block of 21 days: $1,008 in two months."""
    cost = make_run_cost(hours=500, is_paid_first=True, sku="p5.48xlarge block")
    rest = replace(cost.lines[0], kind="commitment", name="unused capacity block", quantity=4.0)
    disks = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=Decimal(7))
    cost = replace(cost, lines=(*cost.lines, rest, disks))
    project = project_with(runs={"seeds": 2}, parallel=1, start="2027-01")
    rows = ledger(make_books(project, a=cost))
    hours = [(str(row.month), row.usd) for row in rows if row.unit == "instance-hour"]
    assert sum(usd for _, usd in hours) == 2 * 504 * 2
    # The second run begins after 500 h, on 21 January, and goes on until 11 February.
    assert {month for month, _ in hours} == {"2027-01"}
    assert {str(row.month) for row in rows if row.kind == "storage"} == {"2027-01", "2027-02"}


def test_what_is_left_of_a_term_is_that_of_the_option_that_is_taken() -> None:
    # A term of 100 h at $2: whole it is paid, however few of its hours the cheap plan uses.
    project = project_with()
    cheap = make_run_cost(hours=20, term_hours=100.0)
    planned = make_planned(project, options={"cheap": cheap, "normal": make_run_cost()})
    books = Books(project=project, planned=(planned,), option="cheap")
    assert total_usd(ledger(books)) == Decimal("200.00")
