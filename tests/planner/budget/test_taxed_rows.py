"""Rows with their share of the tax add up to the ledger."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.budget.fixed_rows import IdlePrice
from gpuplan.planner.budget.ledger import ledger, total_usd
from gpuplan.planner.budget.planned import RunLine
from gpuplan.planner.budget.taxed_rows import taxed_rows
from tests.support.projects import make_books, make_project, make_run_cost


@given(
    disks=st.decimals(0, 500, places=2),
    hours=st.floats(1, 3000),
    percent=st.sampled_from(["0", "0.07", "0.19"]),
)
def test_together_they_are_the_sum(disks: Decimal, hours: float, percent: str) -> None:
    project = make_project(
        extras=[{"name": "licence", "usd": 3}],
        idle=[{"provider": "aws", "instance": "x", "hours_per_month": 5}],
    )
    cost = make_run_cost(hours=hours, tax=percent)
    line = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=disks)
    books = replace(
        make_books(project, a=replace(cost, lines=(*cost.lines, line))),
        idle=(IdlePrice(usd_per_hour=Decimal(2), accelerator="A", region="r"),),
        tax_percent=Decimal(percent) * 100,
    )
    rows = ledger(books)
    found = list(taxed_rows(rows))
    assert float(sum(usd for _, usd in found)) == pytest.approx(float(total_usd(rows)), abs=1e-9)
    assert all(row.kind != "tax" for row, _ in found if row.experiment is not None)
