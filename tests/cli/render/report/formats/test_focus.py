"""The ledger as FOCUS 1.2: every rule of the specification holds, and each rule can fail."""

import csv
import io
from dataclasses import replace
from decimal import Decimal

import pytest
from budget_reports import bare_report, hostile_report, large_report, small_report
from budget_rows import entry
from focus_rules import MANDATORY, RULES, Rule, broken

from gpuplan.cli.render.report.formats.csv import FORMULA_STARTS
from gpuplan.cli.render.report.write import as_text
from gpuplan.planner.budget.fixed_rows import IdlePrice
from gpuplan.planner.budget.planned import OpenLine
from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.budget.report.report import BudgetReport
from gpuplan.planner.budget.report.rows import EntryKind
from tests.support.projects import MADE, make_books, make_project, make_run_cost


def every_kind() -> BudgetReport:
    """Return a report with a row of each kind, and of each way to pay."""
    report = small_report()
    rows = [
        entry(
            report.project.start,
            "pretrain",
            kind,
            kind,
            quantity="2.5",
            unit="instance-hour",
            unit_usd="3.333333",
            provider="aws",
            region="us-east-1",
            sku="p5.48xlarge on-demand",
        )
        for kind in EntryKind.__args__
    ]
    rows += [
        rows[0].model_copy(update={"sku": f"p5.48xlarge {paid}"})
        for paid in ("spot", "committed-3y", "reserved 1y")
    ]
    return report.model_copy(update={"entries": tuple(rows)})


def discounted() -> BudgetReport:
    """Return a report whose machines cost $1.76 of a list price of $2, with tax of a fifth."""
    experiment = {"model": "a.py", "tokens": "1B", "development": 0.5, "runs": {"seeds": 3}}
    project = make_project(
        experiments={"a": experiment, "b": {**experiment, "retry": {"failed_share": "10%"}}},
        price_trend="-10%",
        extras=[{"name": "annotation", "usd": 30}],
        idle=[{"provider": "aws", "instance": "p5.48xlarge", "hours_per_month": 10}],
    )
    cost = make_run_cost(
        hours=1234.5, usd_per_hour="1.76", list_usd_per_hour="2", tax="0.2", spread=1.1
    )
    books = make_books(project, a=cost)
    idle = IdlePrice(
        usd_per_hour=Decimal("44"),
        list_usd_per_hour=Decimal("50"),
        accelerator="H100-80GB-SXM",
        region="us-east-1",
    )
    return build_report(replace(books, idle=(idle,)), MADE)


MAKERS = [small_report, large_report, hostile_report, bare_report, every_kind, discounted]


def rows_of(report: BudgetReport) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(as_text(report, "focus"))))


@pytest.mark.parametrize("make", MAKERS)
def test_every_row_keeps_every_rule(make) -> None:
    report = make()
    rows = rows_of(report)
    assert len(rows) == len(report.entries)
    assert [fault for row in rows for fault in broken(row)] == []


def test_list_prices_are_those_before_the_discounts_of_the_pricebook() -> None:
    """columns/listunitprice.md: "exclusive of any discounts"; a Contracted price has them off."""
    rows = [row for row in rows_of(discounted()) if row["ChargeCategory"] == "Usage"]
    own, other, idle = (
        [row for row in rows if row["x_Experiment"] == name] for name in ("a", "b", "")
    )
    assert own and other and idle
    for row in own:
        ratio = Decimal(row["ListUnitPrice"]) / Decimal(row["ContractedUnitPrice"])
        assert ratio == pytest.approx(Decimal(2) / Decimal("1.76"), rel=Decimal("1e-5"))
    assert {row["ListCost"] == row["ContractedCost"] for row in other} == {True}
    prices = [(Decimal(row["ListUnitPrice"]), Decimal(row["ContractedUnitPrice"])) for row in idle]
    assert prices[0] == (50, 44)
    assert all(paid / listed == pytest.approx(Decimal("0.88")) for listed, paid in prices)


def test_the_list_cost_of_tax_is_calculated_from_that_of_what_it_is_on() -> None:
    """columns/listcost.md 8: of charges calculated based on others."""
    rows = [row for row in rows_of(discounted()) if row["x_Experiment"] == "a"]
    months = {row["ChargePeriodStart"] for row in rows}
    assert len(months) > 1
    for month in months:
        of_month = [row for row in rows if row["ChargePeriodStart"] == month]
        (tax,) = [row for row in of_month if row["ChargeCategory"] == "Tax"]
        others = sum(Decimal(row["ListCost"]) for row in of_month if row is not tax)
        assert Decimal(tax["ListCost"]) == pytest.approx(others / 5, abs=Decimal("1e-5"))
        assert Decimal(tax["ListCost"]) > Decimal(tax["BilledCost"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.clause)
def test_each_rule_can_be_broken(rule: Rule) -> None:
    row = rows_of(small_report())[3]
    assert row["ChargeCategory"] == "Usage"
    assert rule.holds(row)
    assert not rule.holds({**row, **rule.breaks})


def test_the_columns_are_those_of_the_specification_then_ours() -> None:
    """columns/*.md 1, and attributes/column_handling.md on names and order."""
    columns = list(rows_of(small_report())[0])
    focus = [name for name in columns if not name.startswith("x_")]
    assert set(MANDATORY) <= set(focus)
    assert len(MANDATORY) == 21
    assert focus == sorted(focus) == columns[: len(focus)]
    assert all(name.removeprefix("x_").isalnum() and len(name) <= 50 for name in columns)


@pytest.mark.parametrize("make", MAKERS[:4])
def test_the_costs_are_those_of_the_ledger(make) -> None:
    report = make()
    rows = rows_of(report)
    assert sum(Decimal(row["BilledCost"]) for row in rows) == report.total.usd
    assert [row["EffectiveCost"] for row in rows] == [f"{one.usd:f}" for one in report.entries]


def test_a_forecast_says_that_it_is_one() -> None:
    rows = rows_of(small_report())
    assert {row["x_RecordType"] for row in rows} == {"forecast"}
    assert all(row["ChargeDescription"].startswith("Forecast: ") for row in rows)
    assert all(row["BillingAccountId"].startswith("forecast-") for row in rows)


def test_a_sum_that_is_the_least_is_marked_in_every_row_with_what_is_missing_beside_it() -> None:
    """A reader of BilledCost alone took "at least" for all."""
    disks = OpenLine(kind="storage", name="disks", quantity=9.0, unit="GB-month")
    two = {"a": {"model": "a.py", "tokens": "1B"}, "b": {"model": "b.py", "tokens": "1B"}}
    project = make_project(experiments=two, storage=[{"name": "=corpus", "gb": "7"}])
    report = build_report(make_books(project, b=make_run_cost(open_lines=(disks,))), MADE)
    rows = rows_of(report)
    assert {row["x_TotalIsLowerBound"] for row in rows} == {"true"}
    parts = {row["x_Experiment"]: row["x_PartsWithoutPrice"] for row in rows}
    assert parts == {"a": "", "b": "disks"}
    assert [fault for row in rows for fault in broken(row)] == []
    assert {row["x_TotalIsLowerBound"] for row in rows_of(small_report())} == {"false"}


def test_a_region_has_its_name_and_the_moment_of_the_forecast_is_in_utc() -> None:
    """columns/regionname.md; attributes/datetime_format.md."""
    rows = rows_of(every_kind())
    assert {(row["RegionId"], row["RegionName"]) for row in rows} == {("us-east-1", "us-east-1")}
    later = small_report().model_copy(update={"generated_at": "2026-11-23T01:00:00+02:00"})
    assert rows_of(later)[0]["x_ForecastCreated"] == "2026-11-22T23:00:00Z"


def test_a_month_is_one_period() -> None:
    row = rows_of(small_report())[-1]
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == (
        "2027-06-01T00:00:00Z",
        "2027-07-01T00:00:00Z",
    )


def test_kinds_and_ways_to_pay_have_their_categories() -> None:
    rows = rows_of(every_kind())
    charges = {row["x_CostKind"]: row["ChargeCategory"] for row in rows}
    assert {kind for kind, charge in charges.items() if charge != "Usage"} == {
        "tax",
        "commitment",
        "people",
        "extra",
    }
    services = {(row["ServiceName"], row["ServiceCategory"]) for row in rows}
    assert len({name for name, _ in services}) == len(services), "columns/servicename.md 6"
    paid = [row["PricingCategory"] for row in rows if row["x_CostKind"] == "accelerators"]
    assert paid == ["Standard", "Dynamic", "Committed", "Committed"]


def test_hours_on_demand_after_a_term_are_at_no_committed_price() -> None:
    report = every_kind()
    term = report.entries[0].model_copy(update={"sku": "p5.48xlarge committed 1y"})
    after = term.model_copy(update={"name": "on demand after the commitment"})
    rows = rows_of(report.model_copy(update={"entries": (term, after)}))
    assert [row["PricingCategory"] for row in rows] == ["Committed", "Standard"]


def test_no_cell_is_a_formula() -> None:
    cells = {cell for row in rows_of(hostile_report()) for cell in row.values()}
    assert not [cell for cell in cells if cell.startswith(FORMULA_STARTS)]


def test_an_empty_ledger_has_its_heading() -> None:
    empty = small_report().model_copy(update={"entries": ()})
    heading = as_text(empty, "focus").strip().split(",")
    assert set(MANDATORY) <= set(heading)
