"""The whole report: sums, options, limits, words."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from answers import make_job, make_plan, make_run

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.pricebook import Credit
from gpuplan.cli.render.report.words import subtitle
from gpuplan.planner.budget.fixed_rows import IdlePrice
from gpuplan.planner.budget.planned import RunLine, run_cost_of_machine
from gpuplan.planner.budget.ranges import high_factor
from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.budget.report.report import BudgetReport
from tests.support.projects import (
    MADE,
    make_books,
    make_options_books,
    make_project,
    make_run_cost,
)


def report(project=None, **costs) -> BudgetReport:
    return build_report(make_books(project, **costs), MADE)


def test_the_first_sentence_says_what_to_ask_for() -> None:
    found = report(make_project(contingency="10%"))
    assert found.total.usd == Decimal("20.00")
    assert found.contingency_usd == Decimal("2.00")
    assert found.budget_usd == Decimal("22.00")
    assert found.summary[0].startswith("study takes $20.00 from 2027-01 to 2027-06")
    assert "ask for $22.00" in found.summary[0]


def test_a_budget_of_one_month_names_it_once() -> None:
    """It ran "from 2026-11 to 2026-11 (1 months)"."""
    found = report(make_project(months=1))
    assert " in 2027-01" in found.summary[0] and " to 2027-01" not in found.summary[0]
    assert subtitle(found).endswith("2027-01 (1 month)")


def test_without_contingency_it_says_what_is_enough_with_a_chance_of_90_percent() -> None:
    found = report(a=make_run_cost(spread=1.3))
    assert "To be 90 % sure that it is enough" in found.summary[0]
    assert found.total.p10_usd < found.total.usd < found.total.p90_usd


def test_runs_that_would_go_on_for_decades_are_refused_and_no_option() -> None:
    spec = {"model": "a", "tokens": 1, "runs": {"seeds": 50}}
    project = make_project(experiments={"a": spec}, price_trend="100%")
    with pytest.raises(UsageError, match="would end 57 years after") as error:
        report(project, a=make_run_cost(hours=10_000))
    weekly = {"a": {"model": "a", "tokens": 1, "every": "week", "times": 10_000}}
    with pytest.raises(UsageError, match="would end 192 years after"):
        report(make_project(experiments=weekly))
    assert "parallel" in str(error.value.fix)
    books = make_options_books(price_trend="100%")
    slow = make_run_cost(hours=200_000, usd_per_hour="0.00001")
    planned = replace(books.planned[0], options={**books.planned[0].options, "cheap": slow})
    found = build_report(replace(books, planned=(planned,)), MADE)
    assert [one.name for one in found.options] == ["normal", "fast"]


def test_the_three_options_are_the_whole_project_on_other_plans() -> None:
    found = build_report(make_options_books(), MADE)
    cheap, normal, fast = found.options
    assert [one.total.usd for one in found.options] == [16, 20, 60]
    assert [one.days for one in found.options] == pytest.approx([20 / 24, 10 / 24, 2 / 24])
    assert (normal.is_planned, cheap.is_planned, fast.is_planned) == (True, False, False)
    assert cheap.text.startswith("The cheap option takes $16.00, $4.00 less")
    assert fast.accelerator_hours == pytest.approx(128)


def test_an_experiment_may_ask_for_another_option() -> None:
    experiments = {"a": {"model": "a", "tokens": 1, "option": "fast"}}
    found = build_report(make_options_books(experiments=experiments), MADE)
    assert found.total.usd == Decimal("60.00")
    assert [one.is_planned for one in found.options] == [False, False, True]


def test_one_run_of_the_dearest_experiment_is_not_said_of_each() -> None:
    assert "for 1 run, 1B tokens on aws" in " ".join(report().summary)
    two = report(make_project(experiments={"a": {"model": "a", "tokens": 1, "runs": {"seeds": 2}}}))
    assert "for 2 runs, 1B tokens each on aws" in " ".join(two.summary)


def test_limits_are_checked_and_fail_only_where_the_project_says_so() -> None:
    limits = {"total": 19, "month": 20, "run": 25, "owners": {"Ada": 10, "Bo": 10}}
    warned = report(make_project(limits=limits))
    over = {one.name: one.is_over for one in warned.limits}
    assert over == {
        "total": True,
        "month 2027-01": False,
        "owner Ada": True,
        "owner Bo": False,
        "run of a": False,
    }
    assert not warned.is_over
    assert any(text.startswith("Over the limit: total is $20.00") for text in warned.summary)
    assert report(make_project(limits={**limits, "on_exceed": "fail"})).is_over
    assert not report(make_project(limits={"total": 20, "on_exceed": "fail"})).is_over


def test_contingency_counts_against_the_total_limit() -> None:
    assert report(make_project(contingency="10%", limits={"total": 21})).limits[0].is_over


def test_a_project_that_ends_too_late_says_so() -> None:
    found = report(a=make_run_cost(hours=24 * 365))
    assert any("does not end in time" in text for text in found.summary)
    assert found.by_month[-1].name > "2027-06"


def test_accelerators_over_time_peak_where_runs_overlap() -> None:
    project = make_project(
        experiments={
            "a": {"model": "a", "tokens": 1, "runs": {"seeds": 4}, "parallel": 2},
            "b": {"model": "b", "tokens": 1},
        }
    )
    found = report(project)
    (january,) = found.accelerators
    assert january.peak == 8 * 2 + 8
    assert january.hours == pytest.approx(8 * 10 * 5)
    assert january.mean == pytest.approx(400 / (31 * 24))
    assert found.accelerator_hours == pytest.approx(400)


def test_data_without_a_price_says_what_is_missing() -> None:
    kept = {"name": "data", "gb": "60k"}
    places = [
        (
            {"provider": "azure", "region": "eastus"},
            "of azure eastus the price of the first 50,000 GB",
        ),
        ({"provider": "azure", "region": "x"}, "no price of azure x is known; give usd_per_gb"),
        ({"provider": "azure"}, "give region, or usd_per_gb_month"),
        ({}, "give provider and region, or usd_per_gb_month"),
    ]
    for place, said in places:
        found = report(make_project(storage=[{**kept, **place}]))
        assert any(one.startswith("data: ") and said in one for one in found.not_included)


def test_credits_of_the_pricebook_are_named_until_they_are_funding() -> None:
    credit = Credit(provider="aws", usd=Decimal(5000), expires=date(2027, 6, 30))
    found = build_report(replace(make_books(), credits=(credit,)), MADE)
    said = "$5,000 of credits of aws until 2027-06-30, by the pricebook (give them as `funding`)"
    assert said in found.not_included
    funding = [{"name": "gift", "usd": 5000, "kind": "credits", "provider": "aws"}]
    funded = make_books(make_project(funding=funding))
    found = build_report(replace(funded, credits=(credit,)), MADE)
    assert said not in found.not_included


def test_what_is_signed_costs_the_same_if_prices_move() -> None:
    found = report(a=make_run_cost(is_price_agreed=True))
    assert "prices of machines (what if)" not in {one.name for one in found.sensitivities}


def test_what_a_run_may_do_without_is_named_and_in_no_sum() -> None:
    found = report(a=make_run_cost(perhaps=("spares of NVL72",)))
    assert "a: spares of NVL72 (not every run pays them)" in found.not_included


def test_unknown_prices_are_named_and_in_no_sum() -> None:
    cost = make_run_cost(usd=None, usd_low=None, usd_high=None, lines=())
    project = make_project(
        idle=[{"provider": "aws", "instance": "x", "hours_per_month": 1}],
        storage=[{"name": "data", "gb": 1}],
        egress=[{"name": "out", "gb": 1}],
    )
    books = replace(
        make_books(project, a=cost),
        idle=(IdlePrice(usd_per_hour=None, accelerator=None, region=None),),
    )
    found = build_report(books, MADE)
    assert found.total.usd == 0
    text = " ".join(found.not_included)
    assert "a: the machines themselves" in text
    for name in ("data:", "out:", "idle machines:"):
        assert name in text
    assert any("price of" in risk for risk in found.risks)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("a", "a: disks, tax (no price is known)"),
        ("ab", "a, b: disks, tax (no price is known)"),
        ("abcd", "a, b, c, d: disks, tax (no price is known)"),
        ("abcde", "a, b, c and 2 more experiments: disks, tax (no price is known)"),
    ],
)
def test_experiments_that_lack_the_same_prices_share_a_sentence(names: str, said: str) -> None:
    lacking = make_run_cost(unknown=("disks", "tax", "disks"))
    experiments = {name: {"model": name, "tokens": 1} for name in (*names, "z")}
    costs = {**dict.fromkeys(names, lacking), "z": make_run_cost(unknown=("egress",))}
    found = report(make_project(experiments=experiments), **costs)
    assert found.not_included[:2] == (said, "z: egress (no price is known)")


def test_what_all_experiments_lack_is_said_of_all() -> None:
    experiments = {name: {"model": name, "tokens": 1} for name in "ab"}
    costs = dict.fromkeys("ab", make_run_cost(unknown=("disks",)))
    found = report(make_project(experiments=experiments), **costs)
    assert found.not_included[0] == "all 2 experiments: disks (no price is known)"


def test_what_the_file_does_not_say_is_marked_as_a_default_with_its_source() -> None:
    found = report()
    by_name = {one.name: one for one in found.assumptions}
    assert by_name["development runs"].is_default
    assert "arXiv:2503.05804" in by_name["development runs"].source
    assert by_name["contingency"].value == "none"
    said = report(make_project(experiments={"a": {"model": "a", "tokens": 1, "development": 2}}))
    assert {one.name: one.is_default for one in said.assumptions}["development runs: a"] is False


def test_the_assumption_that_moves_most_comes_first_and_no_what_if_in_the_words() -> None:
    found = report(a=make_run_cost(spread=1.5))
    swings = [one.swing_usd for one in found.sensitivities]
    assert swings == sorted(swings, reverse=True)
    assert len(found.sensitivities) <= 5
    assert found.summary[1].startswith("What is least sure is how fast all runs train: ")


def test_sensitivities_say_what_the_total_becomes() -> None:
    experiments = {"a": {"model": "a", "tokens": 1, "development": 1, "runs": {"seeds": 2}}}
    found = report(make_project(experiments=experiments))
    by_name = {one.name: (one.low_usd, one.high_usd) for one in found.sensitivities}
    assert found.total.usd == Decimal("80.00")
    assert by_name["prices of machines (what if)"] == (72, 88)
    assert by_name["development runs"] == (60, 100)
    assert by_name["seeds of every setting (what if)"] == (40, 120)


def test_a_price_of_machines_moves_the_tax_on_machines_alone() -> None:
    """$20 of machines, $10 of disks and $6 of tax: 10 % of the price are $2.40, not $2.60."""
    cost = make_run_cost(tax="0.2", spread=1.5)
    disks = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=Decimal(10))
    found = report(a=replace(cost, lines=(*cost.lines, disks)))
    by_name = {one.name: (one.low_usd, one.high_usd) for one in found.sensitivities}
    assert found.total.usd == Decimal("36.00")
    assert by_name["prices of machines (what if)"] == (Decimal("33.60"), Decimal("38.40"))
    low, high = high_factor(cost)
    assert by_name["how fast all runs train"] == (
        round(12 + 24 * Decimal(low), 2),
        round(12 + 24 * Decimal(high), 2),
    )


def test_the_same_project_has_the_same_hash_and_another_has_not() -> None:
    assert report().project.content_hash == report().project.content_hash
    assert report().project.content_hash != report(make_project(months=7)).project.content_hash


def test_a_report_is_the_same_after_json() -> None:
    found = report(make_project(funding=[{"name": "lab", "usd": 10}]), a=make_run_cost(spread=1.2))
    assert BudgetReport.model_validate_json(found.model_dump_json()) == found


def test_the_dates_of_the_prices_are_those_of_plans_and_of_machines() -> None:
    yearly = {"price_date": date(2025, 1, 1), "price_date_precision": "year"}
    newer = {"price_date": date(2026, 7, 3), "price_date_precision": "day"}
    project = make_project(
        experiments={name: {"model": "a", "tokens": 1} for name in ("a", "b", "c")}
    )
    found = report(
        project,
        a=replace(make_run_cost(), **newer),
        b=replace(make_run_cost(), **yearly),
        c=make_run_cost(),
    )
    assert (found.prices_from, found.prices_to) == (date(2025, 1, 1), date(2026, 7, 3))
    assert found.prices_by_year
    assert any("read in 2025 to 2026-07" in one.value for one in found.assumptions)
    undated = report()
    assert (undated.prices_from, undated.prices_to) == (None, None)
    assert not undated.prices_by_year


def test_what_an_estimate_warns_of_is_a_risk_of_the_project() -> None:
    books = make_books()
    warned = replace(books.planned[0], notes=("the constant is wrong",))
    found = build_report(replace(books, planned=(warned, *books.planned[1:])), MADE)
    assert found.risks[0] == f"{warned.name}: the constant is wrong."


def test_hours_of_a_machine_have_the_date_of_its_price() -> None:
    offer = next(
        one
        for one in load_catalogue().offers
        if one.price_date_precision == "year" and one.on_demand_usd_per_hour is not None
    )
    cost = run_cost_of_machine(offer, nodes=1, hours=10, spot=False)
    assert (cost.price_date, cost.price_date_precision) == (offer.price_date, "year")
    taxed = run_cost_of_machine(offer, nodes=1, hours=10, spot=False, tax_percent=Decimal(20))
    assert cost.usd is not None and taxed.usd == round(cost.usd * Decimal("1.2"), 2)
    assert taxed.usd == round(sum(Decimal(one.quantity) * one.unit_usd for one in taxed.lines), 2)
    unpriced = offer.model_copy(update={"on_demand_usd_per_hour": None})
    assert run_cost_of_machine(unpriced, nodes=1, hours=10, spot=False).price_date is None


def test_a_run_costs_with_what_is_beside_its_machines_what_its_estimate_says() -> None:
    """One run of $22 "in all" was said to cost $20: its disks were left out of it."""
    disks = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=Decimal(2))
    machines = make_run_cost()
    job = make_job(make_run()).model_copy(
        update={"usd": Decimal(20), "total_usd": Decimal(22), "cost_lines": ()}
    )
    cost = replace(machines, lines=(*machines.lines, disks), plan=make_plan(whole_job=job))
    (row,) = build_report(make_books(a=cost), MADE).experiments
    assert (row.run_usd, row.run_beside_usd, row.total.usd) == (20, 2, 22)
