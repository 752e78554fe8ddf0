"""A report on a terminal: one screen, with the total, the options, and the limits it breaks."""

from datetime import date

import pytest
from budget_reports import bare_report, hostile_report, large_report, small_report
from rich.cells import cell_len

from gpuplan.cli.render.report import words
from gpuplan.cli.render.report.figures import usd
from gpuplan.cli.render.report.table import render_table


@pytest.mark.parametrize("make", [small_report, large_report, hostile_report, bare_report])
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_it_fits_twenty_four_lines_of_a_hundred_columns(make, width: int) -> None:
    lines = render_table(make(), width=width)
    assert len(lines) <= 24
    assert max(cell_len(line.plain) for line in lines) <= min(width, 100)
    assert not [line for line in lines if "\n" in line.plain or "\t" in line.plain]


def test_it_says_the_total_the_options_and_what_is_over() -> None:
    report = small_report()
    text = "\n".join(line.plain for line in render_table(report, width=100))
    assert usd(report.budget_usd) in text
    for option in report.options:
        assert f"{option.name} " in text and usd(option.total.usd) in text
    assert "over the limit: owner Ada" in text
    assert "Not included: Taxes;" in text


def test_what_is_not_included_is_told_apart_and_cut_visibly() -> None:
    report = small_report()
    text = " ".join(line.plain for line in render_table(report, width=100))
    assert "Not included: Taxes; Support contracts; Time of people" in " ".join(text.split())
    long = report.model_copy(update={"not_included": tuple(f"thing {i}" for i in range(60))})
    assert render_table(long, width=100)[-1].plain.endswith("…")


def test_what_is_paid_for_no_experiment_is_named_with_its_months() -> None:
    """ "the project  $7,200.00" was a line that is paid each month, and nobody saw which."""
    report = small_report()
    own = {one.name for one in report.entries if one.experiment is None}
    text = " ".join(line.plain for line in render_table(report, width=200))
    assert own and "of no experiment: " in text
    name = next(one for one in own if one in text)
    line = next(one for one in report.entries if one.name == name)
    others = [line.model_copy(update={"month": month}) for month in ("2027-01", "2027-02")]
    twice = report.model_copy(update={"entries": tuple(others)})
    text = " ".join(line.plain for line in render_table(twice, width=200))
    assert f"of no experiment: {name} (2 months)" in text


def test_what_is_not_shown_is_summed() -> None:
    report = large_report()
    text = "\n".join(line.plain for line in render_table(report, width=100))
    assert f"55 more                {usd(sum(one.usd for one in report.by_experiment[6:]))}" in text


def test_the_prices_are_dated_from_the_oldest_to_the_newest() -> None:
    dated = {"prices_from": date(2025, 1, 1), "prices_to": date(2026, 8, 21)}
    report = small_report().model_copy(update={**dated, "prices_by_year": True})
    text = "\n".join(line.plain for line in render_table(report, width=100))
    assert "Prices of 2025 to 2026-08. " in text
    assert "those used here are dated 2025 to 2026-08-21." in words.dates(report)[0]
    yearly = report.model_copy(update={"prices_to": date(2025, 1, 1)})
    text = "\n".join(line.plain for line in render_table(yearly, width=100))
    assert "Prices of 2025. " in text
    text = "\n".join(line.plain for line in render_table(bare_report(), width=100))
    assert f"Prices of {bare_report().snapshot_date}" in text
