"""Figures as text: rounded once, the same everywhere, and names that stay text."""

from datetime import date
from decimal import Decimal

import pytest

from gpuplan.cli.render.report.figures import about_usd, as_text, clean, cut, number, unit_usd, usd
from gpuplan.cli.render.report.tables.tables import Column, Table, added, without_empty
from gpuplan.planner.budget.project.months import Month
from gpuplan.planner.budget.report.summary import dollars


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "$0.00"),
        ("0.005", "$0.01"),
        ("1234.5", "$1,234.50"),
        ("1234567.891", "$1,234,567.89"),
        ("-3", "−$3.00"),  # noqa: RUF001
    ],
)
def test_amounts_are_shown_to_the_cent(amount: str, text: str) -> None:
    assert usd(Decimal(amount)) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [("42718.49", "$42,718"), ("-1573426.7", "−$1,573,427"), ("0", "$0.00"), ("99.5", "$99.50")],  # noqa: RUF001
)
def test_simulated_amounts_are_in_whole_dollars(amount: str, text: str) -> None:
    assert about_usd(Decimal(amount)) == text
    assert about_usd(Decimal(amount)) == dollars(Decimal(amount)).replace("-", "−")  # noqa: RUF001


@pytest.mark.parametrize(
    ("price", "text"), [("55.04", "$55.04"), ("0.0230", "$0.023"), ("29.3868", "$29.3868")]
)
def test_prices_keep_their_digits(price: str, text: str) -> None:
    assert unit_usd(Decimal(price)) == text


def test_quantities_have_no_trailing_zeros() -> None:
    assert [
        number(value) for value in (97.857142, 120.0, 1234.5, 0.5, 100000, 0.001937, 1e-9, 0)
    ] == [
        "97.86",
        "120",
        "1,234",
        "0.5",
        "100,000",
        "0.0019",
        "0.000000001",
        "0",
    ]


def test_unknown_is_said_and_never_zero() -> None:
    for kind in ("usd", "about_usd", "unit_usd", "share", "number", "count", "text", "month"):
        assert as_text(None, kind) == "unknown"
    assert Column("At most", "usd", may_be_absent=True).text(None) == "–"  # noqa: RUF001
    assert as_text(Month(2027, 1), "month") == "2027-01"  # pyright: ignore[reportArgumentType]
    assert as_text(date(2027, 1, 2), "text") == "2027-01-02"


def test_names_stay_on_one_line_and_turn_no_direction() -> None:
    assert clean("a\tb\r\nc\x00d") == "a b c�d"
    assert clean("שלום \u202egnp.exe") == "שלום �gnp.exe"
    assert clean("\ud800") == "�"
    assert clean("日本 🚀 é") == "日本 🚀 é"
    assert cut("x" * 300, 10) == "xxxxxxxxx…"


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert added([Decimal("0.1"), 0.2]) == Decimal("0.3")
    assert added([Decimal("0.1"), None]) is None


def test_what_is_left_out_of_a_table_is_summed() -> None:
    rows = tuple((f"e{index}", Decimal(index)) for index in range(10))
    table = Table(
        id="t",
        caption="c",
        columns=(Column("name"), Column("usd", "usd", adds=True)),
        rows=rows,
        has_total=True,
    )
    kept, left = table.shortened(4)
    assert len(kept) == 4
    assert left == ["6 more", "$39.00"]
    assert table.total_texts() == ["Total", "$45.00"]


def test_only_columns_that_may_be_absent_leave() -> None:
    columns = (Column("name"), Column("limit", "usd", may_be_absent=True), Column("cost", "usd"))
    table = without_empty(
        Table(id="t", caption="c", columns=columns, rows=(("a", None, None), ("b", None, None)))
    )
    assert [column.heading for column in table.columns] == ["name", "cost"]
    assert table.texts() == [["a", "unknown"], ["b", "unknown"]]
