"""What is spent until the end of each month: in the months in which launches ran."""

from decimal import Decimal

from budget_reports import small_report

from gpuplan.cli.render.report.tables.burn_down import burn_down
from gpuplan.planner.budget.project.months import Month
from gpuplan.planner.budget.report.actual_rows import SpentRow


def launch(usd: str, month: Month, by_month: dict[str, Decimal] | None = None) -> SpentRow:
    return SpentRow(
        launch="net-1",
        experiment=None,
        month=month,
        usd=Decimal(usd),
        usd_by_month=by_month or {},
        planned_usd=Decimal(0),
        status="succeeded",
    )


def test_a_launch_over_the_turn_of_a_month_is_spent_in_both() -> None:
    """All of it was in the month in which it was made, beside limits that count both."""
    report = small_report()
    first = report.project.start
    parts = {str(first): Decimal(30), str(first.plus(1)): Decimal(70)}
    found = burn_down(report.model_copy(update={"spent": (launch("100", first, parts),)}))
    assert [one.spent_usd for one in found][:3] == [Decimal(30), Decimal(100), None]


def test_a_report_of_an_older_version_has_all_of_it_in_one_month() -> None:
    report = small_report()
    spent = (launch("100", report.project.start),)
    found = burn_down(report.model_copy(update={"spent": spent}))
    assert [one.spent_usd for one in found][:2] == [Decimal(100), None]
