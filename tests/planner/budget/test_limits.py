"""Limits of a project: what has no price, terms to sign, names of nobody, and what is spent."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from answers import make_plan

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.terms.storage import dearest_usd_per_gb
from gpuplan.cli.render.report.words import standing, verdict
from gpuplan.planner.budget.fixed_rows import IdlePrice
from gpuplan.planner.budget.planned import OpenLine, RunCostOf
from gpuplan.planner.budget.project.months import Month
from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.budget.report.matching import Launched
from gpuplan.planner.budget.report.report import BudgetReport
from gpuplan.planner.budget.report.spent import Spend, with_spent
from gpuplan.planner.plan.payment import CommitmentUse
from tests.support.projects import MADE, make_books, make_project, make_run_cost

TWO = {
    "a": {"model": "a.py", "tokens": "1B", "owner": "Ada"},
    "big": {"model": "b.py", "tokens": "1B", "owner": "Bo"},
}
LIMITS = {
    "run": "50",
    "month": "50",
    "total": "50",
    "owners": {"Ada": "50", "Bo": "50"},
    "on_exceed": "fail",
}


def report(fields: dict[str, Any] | None = None, **costs: RunCostOf) -> BudgetReport:
    project = make_project(**{"experiments": TWO, "limits": LIMITS, **(fields or {})})
    return build_report(make_books(project, **costs), MADE)


def without_price() -> RunCostOf:
    return replace(make_run_cost(), usd=None, usd_low=None, usd_high=None, lines=())


def test_what_has_no_price_is_not_free() -> None:
    found = report(
        {"contingency": "10%", "funding": [{"name": "grant", "usd": "100"}]}, big=without_price()
    )
    assert found.total.usd == Decimal("20.00") and found.unpriced == ("big",)
    assert found.summary[0].startswith("study takes at least $20.00")
    assert "ask for at least $22.00" in found.summary[0]
    assert "The price of big is not known: it is in no sum" in found.summary[1]
    assert "The planned cost that is known is funded, and so is the contingency." in found.summary
    unknown = {one.name for one in found.limits if one.is_unknown}
    assert unknown == {"total", "month 2027-01", "owner Bo", "run of big"}
    assert found.must_not_pass and not found.is_over
    assert (
        verdict(found) == "Not known whether 4 of 6 limits are kept: the price of big is not known."
    )
    assert standing(found) == "limits not known"


def test_a_price_that_leaves_a_part_out_does_not_keep_a_limit() -> None:
    """Every sum of it read as known, and "All 6 limits are kept" of what costs more."""
    host = OpenLine(kind="accelerators", name="vCPUs", quantity=10.0, unit="instance-hour")
    apart = make_run_cost(open_lines=(host,))
    found = report({"contingency": "10%", "funding": [{"name": "grant", "usd": "100"}]}, big=apart)
    assert found.total.usd == Decimal("40.00") and found.in_part == ("big",)
    assert found.summary[0].startswith("study takes at least $40.00")
    assert "ask for at least $44.00" in found.summary[0]
    assert found.summary[1] == (
        "The price of a part of big is not known (vCPUs), and the project costs more than its sums."
    )
    assert "The planned cost that is known is funded, and so is the contingency." in found.summary
    unknown = {one.name for one in found.limits if one.is_unknown}
    assert unknown == {"total", "month 2027-01", "owner Bo", "run of big"}
    assert found.must_not_pass and not found.is_over
    assert found.total.lower_bound and found.month_ranges[0].lower_bound
    least = [
        {one.name for one in sums if one.lower_bound}
        for sums in (found.by_month, found.by_experiment, found.by_owner, found.by_provider)
    ]
    assert least == [{"2027-01"}, {"big"}, {"Bo"}, {"aws"}]
    rows = {row.name: row.total.lower_bound for row in found.experiments}
    assert rows == {"a": False, "big": True}


def disks(gb_months: float, dearest_usd: str | None = "0.3") -> OpenLine:
    dearest = None if dearest_usd is None else Decimal(dearest_usd)
    return OpenLine(
        kind="storage",
        name="disks",
        quantity=gb_months,
        unit="GB-month",
        dearest_unit_usd=dearest,
    )


def test_a_limit_that_even_the_dearest_known_price_keeps_is_kept() -> None:
    """Cents of disks in Quebec left five limits of thousands of dollars "not known"."""
    apart = make_run_cost(open_lines=(disks(10.0),))
    found = report({"contingency": "10%", "limits": {**LIMITS, "total": "50"}}, big=apart)
    assert not found.must_not_pass and found.is_lower_bound
    most = {one.name: one.at_most_usd for one in found.limits if one.at_most_usd is not None}
    assert most == {
        "total": Decimal("47.30"),
        "month 2027-01": Decimal(43),
        "owner Bo": Decimal(23),
        "run of big": Decimal(23),
    }
    assert verdict(found) == (
        "All 6 limits are kept: total is at most $47.30 even at the dearest known price."
    )
    assert standing(found) == "within the limits"
    bo = next(one for one in found.by_owner if one.name == "Bo")
    assert (bo.usd, bo.at_most_usd, bo.is_unknown) == (20, 23, False)
    assert next(one for one in found.by_owner if one.name == "Ada").at_most_usd is None


def test_a_limit_that_the_dearest_known_price_may_break_is_not_known() -> None:
    found = report(big=make_run_cost(open_lines=(disks(40.0),)))
    unknown = {one.name: one for one in found.limits if one.is_unknown}
    assert set(unknown) == {"total", "month 2027-01"} and found.must_not_pass
    assert unknown["total"].over_text == (
        "Not known whether a limit is kept: total is at least $40.00, at most $50.00 is allowed,"
        " and the price of a part of big is not known ($52.00 at the dearest known price)."
    )


def test_one_line_that_nothing_bounds_leaves_its_limits_open() -> None:
    open_lines = (disks(1.0), disks(1.0, None))
    found = report(big=make_run_cost(open_lines=open_lines))
    assert {one.at_most_usd for one in found.limits} == {None}
    unknown = {one.name for one in found.limits if one.is_unknown}
    assert unknown == {"total", "month 2027-01", "owner Bo", "run of big"}


def test_stored_data_without_a_price_is_bounded_with_its_tax() -> None:
    fields = {
        "storage": [{"name": "corpus", "gb": "100"}],
        "egress": [{"name": "weights", "gb": "10"}],
        "limits": {**LIMITS, "total": "100"},
    }
    project = make_project(**{"experiments": TWO, **fields})
    books = replace(make_books(project), tax_percent=Decimal(20))
    found = build_report(books, MADE)
    kept = dearest_usd_per_gb("object_storage_usd_per_gb_month")
    sent = dearest_usd_per_gb("internet_egress_usd_per_gb")
    most_usd = 40 + (6 * 100 * kept + 10 * sent) * Decimal("1.2")
    total = next(one for one in found.limits if one.name == "total")
    assert total.at_most_usd == pytest.approx(most_usd, abs=Decimal("0.01"))
    assert total.unpriced == ("corpus", "weights") and not total.is_unknown


def test_the_month_that_may_break_a_limit_is_told_and_not_the_dearest() -> None:
    """The dearest month was said to be "at least" so much, for a part of another one."""
    later = {
        "a": {"model": "a.py", "tokens": "1B"},
        "big": {"model": "b.py", "tokens": "1B", "start": "2027-03"},
    }
    host = OpenLine(kind="accelerators", name="vCPUs", quantity=10.0, unit="instance-hour")
    cheap = make_run_cost(usd_per_hour="1", open_lines=(host,))
    found = report({"experiments": later, "limits": {"month": "50"}}, big=cheap)
    (month,) = found.limits
    assert month.name == "month 2027-03" and month.usd == 10 and month.is_unknown


def test_the_lines_without_a_price_are_those_of_the_ledger_but_for_it() -> None:
    found = report(
        {"storage": [{"name": "corpus", "gb": "7"}]},
        big=make_run_cost(hours=24 * 31 * 1.5, open_lines=(disks(10.0),)),
    )
    assert found.unpriced == ("corpus",) and found.in_part == ("big",)
    of_runs = [one for one in found.open_lines if one.experiment == "big"]
    assert [str(one.month) for one in of_runs] == ["2027-01", "2027-02"]
    assert sum(one.quantity for one in of_runs) == 10 and of_runs[0].owner == "Bo"
    kept = [one for one in found.open_lines if one.experiment is None]
    assert len(kept) == 6 and {one.quantity for one in kept} == {7}
    assert {one.name: one.lower_bound for one in found.by_kind}["storage"]


def test_idle_machines_without_a_price_are_not_free_either() -> None:
    idle = {"name": "dev", "provider": "gcp", "instance": "a4x-highgpu-4g", "hours_per_month": "9"}
    project = make_project(idle=[idle], limits={"total": "50", "on_exceed": "fail"})
    none = IdlePrice(usd_per_hour=None, accelerator="GB200", region=None)
    found = build_report(replace(make_books(project), idle=(none,)), MADE)
    assert found.unpriced == ("dev",)
    (total,) = found.limits
    assert total.is_unknown and "the price of dev is not known" in total.over_text


def test_where_everything_has_a_price_nothing_is_unknown() -> None:
    found = report()
    assert not found.unpriced and not found.beyond and not found.must_not_pass
    assert verdict(found) == "All 6 limits are kept."


UNSIGNED = CommitmentUse(
    term_years=3,
    terms=1,
    usd=Decimal(500_000),
    used_share=0.0,
    unused_usd=Decimal(499_980),
    unused_is_counted=False,
    nodes_held=None,
)


def test_a_term_that_must_be_signed_is_said_and_counts_against_the_total() -> None:
    def on(**changes: Any) -> RunCostOf:
        plan = make_plan(commitment=UNSIGNED.model_copy(update=changes))
        return make_run_cost(plan=plan, rent="gcp 1 x a2 committed 3y")

    found = report(big=on())
    (sentence,) = found.beyond
    assert "a term of 3 years that is not signed yet: $500,000, used or not" in sentence
    assert sentence == found.summary[1]
    (term,) = (one for one in found.limits if one.name == "total with the terms to sign")
    assert term.usd == Decimal(500_000) + Decimal("20.00") and term.is_over
    assert found.must_not_pass
    for held in (on(nodes_held=4), on(unused_is_counted=True)):
        assert not report(big=held).beyond and not report(big=held).must_not_pass


def test_runs_at_once_take_a_term_each() -> None:
    use = UNSIGNED.model_copy(
        update={"term_years": 1, "usd": Decimal(1000), "unused_usd": Decimal(980)}
    )
    seeds = {"a": {"model": "a.py", "tokens": "1B", "runs": {"seeds": 4}, "parallel": 4}}
    cost = make_run_cost(plan=make_plan(commitment=use))
    found = report({"experiments": seeds, "limits": {}}, a=cost)
    assert "a term of 1 year" in found.beyond[0] and "$4,000" in found.beyond[0]


def test_a_misspelt_owner_is_refused_and_one_of_nobody_is_said() -> None:
    with pytest.raises(UsageError, match=r"names Adda, and nothing .* Did you mean Ada"):
        report({"limits": {"owners": {"Adda": "5"}}})
    found = report({"limits": {"owners": {"Zoe Quinn": "5"}}})
    assert found.beyond == (
        "Nothing that is planned is of Zoe Quinn, whose limit counts nothing then.",
    )


def spend(usd: str, launch: str = "net-1", **changes: Any) -> Spend:
    facts: dict[str, Any] = {
        "launch": launch,
        "launched": Launched(plan="p1", is_of_project=True),
        "month": Month(2027, 3),
        "status": "running",
        "has_ended": False,
        "has_succeeded": False,
        "usd": Decimal(usd),
        "lost_usd": Decimal(0),
        "idle_usd": Decimal(0),
        "node_hour_usd": Decimal(2),
        "billed_usd": None,
    }
    return Spend(**{**facts, **changes})


def launched(made: BudgetReport) -> BudgetReport:
    rows = tuple(row.model_copy(update={"plan_id": f"p-{row.name}"}) for row in made.experiments)
    return made.model_copy(update={"experiments": rows})


def test_what_is_spent_exceeds_a_limit_that_the_plan_keeps() -> None:
    planned = launched(report({"limits": {**LIMITS, "total": "100"}}))
    assert not planned.must_not_pass
    spends = [
        spend("60", launched=Launched(plan="p-a")),
        spend("10", "net-2", launched=Launched(plan="p-big"), month=Month(2027, 1)),
        spend("5", "net-3", owner="bo"),
    ]
    found = with_spent(planned, spends)
    over = {one.name: one.spent_usd for one in found.limits if one.is_over}
    assert over == {"month 2027-03": 65, "owner Ada": 60, "run of a": 60}
    by_name = {one.name: one for one in found.limits}
    assert by_name["owner Bo"].spent_usd == 15 and by_name["total"].spent_usd == 75
    assert by_name["month 2027-01"].spent_usd == 10 and not by_name["month 2027-01"].is_over
    assert by_name["owner Ada"].over_text == (
        "Over the limit: owner Ada has cost $60.00, and at most $50.00 is allowed."
    )
    assert found.must_not_pass and found.is_over and standing(found) == "over a limit"
    assert found.so_far == "So far 3 launches have cost $75.00, and none has ended."
    assert found.so_far in found.summary
    march = next(one for one in found.by_month if one.name == "2027-03")
    assert march.spent_usd == 65 and march.usd == 0


def test_a_kept_report_counts_its_launches_anew() -> None:
    planned = launched(report())
    once = with_spent(planned, [spend("60"), spend("1", "net-2", month=Month(2027, 1))])
    again = with_spent(once, [spend("61"), spend("1", "net-2", month=Month(2027, 1))])
    assert again == with_spent(planned, [spend("61"), spend("1", "net-2", month=Month(2027, 1))])


def test_a_launch_over_the_turn_of_a_month_counts_in_both() -> None:
    parts = {"2027-01": Decimal("45"), "2027-02": Decimal("15")}
    one = spend("60", launched=Launched(plan="p-a"), month=Month(2027, 1), usd_by_month=parts)
    found = with_spent(launched(report({"limits": {"month": "50"}})), [one])
    spent = {row.name: row.spent_usd for row in found.by_month if row.spent_usd is not None}
    assert spent == parts
    assert not any(one.is_over for one in found.limits)
