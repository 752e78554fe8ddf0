"""The ledger as CSV: exact, complete, and no cell is a formula."""

import csv
import io
from decimal import Decimal

import pytest
from budget_reports import hostile_report, large_report, small_report

from gpuplan.cli.render.report.formats.csv import FORMULA_STARTS, csv_cell, render_csv
from gpuplan.planner.budget.report.rows import Entry


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("make", [small_report, large_report])
def test_its_rows_add_up_to_the_total(make) -> None:
    report = make()
    rows = read(render_csv(report))
    assert sum(Decimal(row["usd"]) for row in rows) == report.total.usd
    assert len(rows) == len(report.entries)
    assert list(rows[0]) == list(Entry.model_fields)


def test_it_is_read_back_as_it_was() -> None:
    report = small_report()
    rows = [{key: value or None for key, value in row.items()} for row in read(render_csv(report))]
    assert [Entry.model_validate(row) for row in rows] == list(report.entries)


def test_no_cell_is_a_formula() -> None:
    rows = read(render_csv(hostile_report()))
    cells = {cell for row in rows for cell in row.values()}
    assert not [cell for cell in cells if cell.startswith(FORMULA_STARTS)]
    assert "'+1+1" in cells
    assert "x" * 300 in cells


@pytest.mark.parametrize("start", FORMULA_STARTS)
def test_a_text_that_would_be_computed_is_quoted_and_else_unchanged(start: str) -> None:
    assert csv_cell(f"{start}1+1") == f"'{start}1+1"


def test_numbers_stay_numbers() -> None:
    assert csv_cell(Decimal("-1E+2")) == "-100"
    assert csv_cell(-2.5) == "-2.5"
    assert csv_cell(None) == ""
    assert csv_cell("a=b") == "a=b"
