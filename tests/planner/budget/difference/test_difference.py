"""What changed between two reports: causes that name the reason and add up to the cent."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.planner.budget.difference.causes import Difference
from gpuplan.planner.budget.difference.difference import difference
from gpuplan.planner.budget.difference.words import share_text
from gpuplan.planner.budget.fixed_rows import IdlePrice
from gpuplan.planner.budget.planned import OpenLine, RunCostOf, RunLine
from gpuplan.planner.budget.project.project import Project
from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.budget.report.report import BudgetReport
from tests.support.projects import MADE, make_books, make_project, make_run_cost

TWO = {"a": {"model": "a.py", "tokens": "1B"}, "b": {"model": "b.py", "tokens": "1B"}}


def report(project: Project | None = None, **costs: RunCostOf) -> BudgetReport:
    return build_report(make_books(project, **costs), MADE)


def with_rows(found: BudgetReport, version: str | None = None, **fields: Any) -> BudgetReport:
    """Return a report with fields of its experiments changed."""
    rows = tuple(row.model_copy(update=fields) for row in found.experiments)
    return found.model_copy(
        update={"experiments": rows, "gpuplan_version": version or found.gpuplan_version}
    )


def seeds(count: int, **fields: Any):
    return make_project(
        experiments={"a": {"model": "a.py", "tokens": "1B", "runs": {"seeds": count}, **fields}}
    )


def adds_up(found: Difference, before: BudgetReport, after: BudgetReport) -> None:
    assert found.difference_usd == after.budget_usd - before.budget_usd
    assert sum(one.usd for one in found.causes) == found.difference_usd
    assert sum(one.usd for one in found.by_kind) == found.difference_usd
    for one in found.experiments:
        assert one.difference_usd == (one.after_usd or 0) - (one.before_usd or 0)
        assert sum(cause.usd for cause in one.causes) == one.difference_usd


def kinds(found: Difference) -> dict[str, Decimal]:
    return {one.kind: one.usd for one in found.by_kind}


def test_more_seeds_are_the_reason() -> None:
    found = difference(report(seeds(2)), report(seeds(3)))
    assert found.headline == "$20.00 more (+50 %): all of it because a runs 3 seeds instead of 2."
    assert kinds(found) == {"runs": Decimal("20.00")}
    assert found.share == pytest.approx(0.5)


def test_a_tax_is_a_reason_of_its_own() -> None:
    before, after = report(), report(a=make_run_cost(tax="0.19"))
    found = difference(before, after)
    assert [one.text for one in found.causes] == ["the tax on a is 19 % instead of none"]
    assert difference(after, before).causes[0].text == "the tax on a is none instead of 19 %"
    adds_up(found, before, after)


def test_the_same_report_changes_nothing() -> None:
    found = difference(report(), report())
    assert found.causes == () and found.experiments == () and found.difference_usd == 0
    assert found.headline == "Nothing changed: $20.00 in both."


def test_a_dearer_hour_of_the_same_machine_is_its_price() -> None:
    after = report(a=make_run_cost(usd_per_hour="2.5"))
    found = difference(report(), after)
    assert kinds(found) == {"price": Decimal("5.00")}
    assert "costs $2.5000 instead of $2.0000" in found.headline


def test_more_samples_are_work_and_the_start_of_the_machines_is_not() -> None:
    before = with_rows(report(), samples=1e6, work="1B tokens")
    # The start stays 1 h; what trains doubles from 9 h to 18 h.
    start, training = make_run_cost().lines
    longer = make_run_cost(hours=19.0, lines=(start, _twice(training)))
    after = with_rows(report(a=longer), samples=2e6, work="2B tokens")
    found = difference(before, after)
    assert kinds(found) == {"work": Decimal("18.00")}
    assert "a run of a is 2B tokens instead of 1B tokens" in found.headline


def _twice(line: RunLine) -> RunLine:
    return replace(line, quantity=2 * line.quantity)


def test_another_model_another_version_and_another_plan_are_told_apart() -> None:
    slow = make_run_cost(hours=20.0)
    known: dict[str, Any] = {"samples": 1e6, "flops_per_sample": 1e12}
    before = with_rows(report(), **known)
    model = with_rows(report(a=slow), **{**known, "flops_per_sample": 2e12})
    found = difference(before, model)
    assert kinds(found) == {"model": Decimal("20.00")}
    assert "a sample of a takes 100 % more FLOPs" in found.headline
    speed = with_rows(report(a=slow), **known)
    assert kinds(difference(before, speed)) == {"speed": Decimal("20.00")}
    software = with_rows(report(a=slow), "2", **known)
    found = difference(before, software)
    assert kinds(found) == {"software": Decimal("20.00")}
    assert "as gpuplan 2 estimates it" in found.headline
    other = make_run_cost(hours=4.0, usd_per_hour="8", rent="gcp 1 x a3", sku="a3 on-demand")
    plan = with_rows(report(a=other), **known)
    found = difference(before, plan)
    assert kinds(found) == {"plan": Decimal("12.00")}
    assert "a is planned on gcp 1 x a3 instead of aws 1 x p4d.24xlarge us-east-1" in found.headline


def test_experiments_that_come_and_go_are_scope() -> None:
    both = make_project(
        experiments={
            "a": {"model": "a.py", "tokens": "1B"},
            "b": {"model": "b.py", "tokens": "1B"},
        }
    )
    one = make_project(experiments={"b": {"model": "b.py", "tokens": "1B"}})
    found = difference(report(both), report(one))
    assert found.headline == "$20.00 less (−50 %): all of it because a is left out."  # noqa: RUF001
    assert found.experiments[0].after_usd is None and found.experiments[0].is_left_out
    assert kinds(difference(report(one), report(both))) == {"scope": Decimal("20.00")}


def test_fixed_lines_and_contingency_belong_to_no_experiment() -> None:
    before = report(make_project(contingency="10%"))
    extras = [{"name": "licence", "usd": "30"}]
    after = report(make_project(contingency="20%", extras=extras))
    found = difference(before, after)
    adds_up(found, before, after)
    assert kinds(found) == {"fixed": Decimal("180.00"), "contingency": Decimal("38.00")}
    assert found.experiments == ()
    assert [one.text for one in found.project] == [
        "licence is new",
        "the contingency is 20 % instead of 10 %",
    ]


def test_changes_that_cancel_out_are_still_named() -> None:
    before = with_rows(report(), samples=1e6)
    after = with_rows(report(seeds(2), a=make_run_cost(usd_per_hour="1")), samples=1e6)
    found = difference(before, after)
    assert found.difference_usd == 0
    assert kinds(found) == {"runs": Decimal("20.00"), "price": Decimal("-20.00")}
    assert found.headline.startswith("The same sum, $20.00: what changed cancels out")


def test_a_price_that_comes_to_be_known_is_a_price() -> None:
    unpriced = make_run_cost(lines=(), usd=None, usd_low=None, usd_high=None)
    before, after = report(a=unpriced), report()
    found = difference(before, after)
    adds_up(found, before, after)
    assert "the price of a was not known before" in found.headline
    assert found.share is None and found.experiments[0].before_usd is None
    adds_up(difference(after, before), after, before)


def test_a_price_that_is_not_known_any_more_saves_nothing() -> None:
    """ "$20 less" was said, and the gate of a pull request let it pass."""
    unpriced = make_run_cost(lines=(), usd=None, usd_low=None, usd_high=None)
    project = make_project(experiments=TWO, contingency="10%")
    found = difference(report(project), report(project, a=unpriced))
    assert found.not_compared == ("a",) and found.after.unpriced == ("a",)
    assert [found.worth(one) for one in found.experiments[0].causes] == [None]
    assert found.headline == (
        "Not known how much more or less, as the price of a is not known."
        " All else: nothing changed: $22.00 in both."
    )
    more = make_project(experiments={**TWO, "b": {**TWO["b"], "runs": {"seeds": 2}}})
    found = difference(report(project), report(more, a=unpriced))
    assert "All else: $18.00 more (+82 %): mostly because b runs 2 seeds" in found.headline


def test_an_idle_machine_whose_price_is_not_known_any_more_saves_nothing_either() -> None:
    idle = {"name": "dev", "provider": "gcp", "instance": "a4x-highgpu-4g", "hours_per_month": "9"}
    project = make_project(idle=[idle], contingency="10%")

    def priced(usd: Decimal | None) -> BudgetReport:
        price = IdlePrice(usd_per_hour=usd, accelerator="GB200", region=None)
        return build_report(replace(make_books(project), idle=(price,)), MADE)

    before, after = priced(Decimal(2)), priced(None)
    found = difference(before, after)
    assert before.budget_usd > after.budget_usd and found.not_compared == ("dev",)
    assert "All else: nothing changed" in found.headline
    (cause,) = (one for one in found.causes if one.kind == "price")
    assert cause.text == "the price of dev is not known any more" and found.worth(cause) is None
    assert sum(one.usd for one in found.causes) == found.difference_usd


def test_more_idle_hours_without_a_price_are_a_change_and_the_same_are_none() -> None:
    """Whatever its hours were, a line of no experiment without a price was "as it was"."""

    def idle(hours: str) -> BudgetReport:
        line = {"name": "dev", "provider": "gcp", "instance": "a4x-highgpu-4g"}
        project = make_project(idle=[{**line, "hours_per_month": hours}])
        none = IdlePrice(usd_per_hour=None, accelerator="GB200", region="us")
        return build_report(replace(make_books(project), idle=(none,)), MADE)

    found = difference(idle("9"), idle("700"))
    assert found.not_compared == ("dev",) and found.headline.startswith("Not known")
    same = difference(idle("9"), idle("9"))
    assert not same.not_compared and same.headline.startswith("Nothing changed")
    older = idle("9").model_copy(update={"open_lines": ()})
    assert difference(older, idle("9")).not_compared == ("dev",)


HOST = OpenLine(kind="accelerators", name="vCPUs and memory", quantity=10.0, unit="instance-hour")


def test_a_price_that_leaves_a_part_out_saves_nothing() -> None:
    in_part = make_run_cost(usd_per_hour="1", open_lines=(HOST,))
    found = difference(report(), report(a=in_part))
    assert found.difference_usd == -10 and found.not_compared == ("a",)
    assert found.headline.startswith(
        "Not known how much more or less, as the price of a part of a is not known."
    )
    assert found.after.in_part == ("a",) and found.not_compared_text.startswith("the price of a pa")
    back = difference(report(a=in_part), report())
    assert not back.not_compared and back.headline.startswith("At most $10.00 more")
    none = replace(in_part, usd=None, lines=(), open_lines=())
    assert difference(report(a=none), report(a=in_part)).not_compared == ("a",)


def test_the_same_part_without_a_price_changes_nothing() -> None:
    one = make_run_cost(usd_per_hour="1", open_lines=(HOST,))
    assert difference(report(a=one), report(a=one)).headline.startswith("Nothing changed")
    longer = replace(one, open_lines=(replace(HOST, quantity=20.0),))
    assert difference(report(a=one), report(a=longer)).not_compared == ("a",)


def test_more_hours_without_a_price_are_a_change_and_the_same_hours_are_none() -> None:
    unpriced = make_run_cost(lines=(), usd=None, usd_low=None, usd_high=None)
    before, after = report(seeds(1), a=unpriced), report(seeds(3), a=unpriced)
    found = difference(before, after)
    assert found.not_compared == ("a",) and [one.name for one in found.experiments] == ["a"]
    same = difference(before, before)
    assert not same.not_compared and same.headline.startswith("Nothing changed")


def test_what_a_run_is_otherwise_is_said_alone() -> None:
    before = with_rows(report(), work="layers=24, hidden=64, 400B tokens", samples=4.0)
    after = with_rows(report(), work="layers=24, hidden=64, 300B tokens", samples=3.0)
    texts = [one.text for one in difference(before, after).causes if one.kind == "work"]
    assert texts == ["a run of a is 300B tokens instead of 400B tokens"]


def test_a_report_of_an_older_version_has_no_samples() -> None:
    before = with_rows(report(), plan_id="x", work="1B tokens")
    after = with_rows(report(a=make_run_cost(hours=20.0)), plan_id="y", work="2B tokens")
    assert kinds(difference(before, after))["work"] == Decimal("18.00")


def test_sums_of_few_cents_have_no_causes_that_are_rounding() -> None:
    before = report(a=make_run_cost(hours=0.037))
    found = difference(before, report(seeds(3), a=make_run_cost(hours=0.037)))
    assert [one.kind for one in found.by_kind] == ["runs"]


def test_a_report_read_back_from_json_is_the_same() -> None:
    before, after = report(seeds(2)), report(seeds(3))
    again = [BudgetReport.model_validate_json(one.model_dump_json()) for one in (before, after)]
    assert difference(*again) == difference(before, after)


COSTS = st.builds(
    make_run_cost,
    hours=st.floats(0.01, 3000),
    usd_per_hour=st.decimals("0.0001", "400", places=4).map(str),
    nodes=st.integers(1, 9),
    tax=st.sampled_from([None, "0.2", "0.0825"]),
    sku=st.sampled_from(["x on-demand", "y spot"]),
    rent=st.sampled_from(["aws 1 x", "gcp 2 y"]),
)
ROWS = st.fixed_dictionaries(
    {
        "samples": st.sampled_from([None, 1e6, 3.3e6, 7.0]),
        "flops_per_sample": st.sampled_from([None, 1e12, 3.1e9]),
        "work": st.sampled_from([None, "1B tokens", "2B tokens"]),
        "plan_id": st.sampled_from([None, "a1"]),
    }
)


@st.composite
def reports(draw: st.DrawFn) -> BudgetReport:
    names = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    experiments = {
        name: {
            "model": "a.py",
            "tokens": "1B",
            "runs": {"seeds": draw(st.integers(1, 5))},
            "development": draw(st.sampled_from([0, 0.37])),
        }
        for name in names
    }
    project = make_project(
        experiments=experiments,
        contingency=draw(st.sampled_from(["0%", "7%"])),
        price_trend=draw(st.sampled_from(["0%", "-13%"])),
        extras=draw(st.sampled_from([[], [{"name": "licence", "usd": "3.33"}]])),
    )
    made = report(project, **{name: draw(COSTS) for name in names})
    return with_rows(made, draw(st.sampled_from(["1", "2"])), **draw(ROWS))


@settings(max_examples=40, deadline=None)
@given(reports(), reports())
def test_causes_add_up_to_the_cent(before: BudgetReport, after: BudgetReport) -> None:
    adds_up(difference(before, after), before, after)


@pytest.mark.parametrize(
    ("share", "text"), [(0.25, "+25 %"), (-0.5, "−50 %"), (48.0, "49 times as much")]
)
def test_what_is_many_times_as_much_is_said_in_times(share: float, text: str) -> None:
    assert share_text(share) == text
