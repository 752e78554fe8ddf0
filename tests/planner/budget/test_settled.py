"""The rows of runs add up to what the runs cost, and each is still quantity times unit price."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.planner.budget.ledger import ledger, total_usd
from gpuplan.planner.budget.money import cents, rounded_usd
from gpuplan.planner.budget.planned import RunLine
from gpuplan.planner.budget.settled import settled
from gpuplan.planner.cost.run_cost import UNIT
from tests.support.projects import make_books, make_project, make_run_cost, project_with


def lines(*hours: float, usd_per_hour: str) -> tuple[RunLine, ...]:
    """Return lines of so many hours, as of a plan."""
    price = Decimal(usd_per_hour)
    return tuple(
        RunLine(kind="accelerators", name=f"line {i}", quantity=one, unit=UNIT, unit_usd=price)
        for i, one in enumerate(hours)
    )


def test_one_run_costs_what_its_estimate_says() -> None:
    """Of a plan of $58.30 the report said $58.29: each of its lines was rounded down."""
    price = "3.36312"
    hours = (1 / 12, 1 / 12, 16.433061446944443, 0.5212608183333334, 0.05192328166666667, 0.0007)
    cost = make_run_cost(lines=lines(*hours, usd_per_hour=price), usd=Decimal("57.76"))
    rows = ledger(make_books(project_with(), a=cost))
    exact = sum(map(Decimal, hours)) * Decimal(price)
    assert total_usd(rows) == cents(exact) == Decimal("57.76")
    assert sum(rounded_usd(row.quantity, Decimal(price)) for row in rows) == Decimal("57.76")
    # A cent is in the line that needs the fewest seconds for it.
    for row, planned in zip(rows, hours, strict=True):
        assert float(row.quantity) == pytest.approx(planned, abs=0.0003)


def test_machines_and_what_is_beside_them_are_taxed_apart_as_in_an_estimate() -> None:
    disks = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=Decimal("2.69"))
    tax = RunLine(kind="tax", name="tax", quantity=71.5, unit="USD", unit_usd=Decimal("0.19"))
    machines = lines(71.5, usd_per_hour="1")
    cost = make_run_cost(lines=(*machines, disks, tax))
    rows = ledger(make_books(project_with(), a=cost))
    found = [(row.quantity, row.usd) for row in rows if row.kind == "tax"]
    assert found == [(Decimal("71.50"), Decimal("13.59")), (Decimal("2.69"), Decimal("0.51"))]


@settings(max_examples=60, deadline=None)
@given(
    hours=st.lists(st.floats(0.001, 900), min_size=1, max_size=8),
    milli=st.integers(50, 99_000),
    months=st.integers(1, 9),
)
def test_every_row_is_still_a_quantity_times_a_price(hours, milli, months) -> None:
    price = str(Decimal(milli) / 1000)
    cost = make_run_cost(lines=lines(*hours, usd_per_hour=price), hours=months * 700.0)
    rows = ledger(make_books(make_project(months=1), a=cost))
    assert all(row.usd == rounded_usd(row.quantity, row.unit_usd) for row in rows)
    assert all(row.quantity > 0 for row in rows)
    exact = sum(map(Decimal, hours)) * Decimal(price)
    assert abs(total_usd(rows) - exact) <= Decimal("0.006")
    moved_h = abs(sum(float(row.quantity) for row in rows) - sum(hours))
    assert moved_h * float(price) <= 0.011 * len(rows)


def test_what_no_hours_can_settle_stays() -> None:
    disks = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=Decimal(3))
    rows = ledger(make_books(project_with(), a=make_run_cost(lines=(disks,))))
    assert settled(rows, Decimal("3.01")) == list(rows)
