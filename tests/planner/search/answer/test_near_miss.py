"""Where nothing can be recommended, or nothing that gpuplan runs: the nearest plan, and its way."""

from typing import Any

import pytest
from answers import make_offer, make_plan, make_run

from gpuplan.planner.plan.answer.answer_parts import NearMiss
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Money, Question
from gpuplan.planner.search.answer.answer import answer_of
from gpuplan.planner.search.answer.near_miss import obstacles


def plan(usd: float, hours: float = 10.0, **changes: Any) -> Plan:
    run = make_run(
        hours=hours, hours_low=hours, hours_high=hours, usd=usd, usd_low=usd, usd_high=usd
    )
    fields = {"runnable": True, "offer": make_offer(usd_per_hour=usd / hours), **changes}
    return make_plan(run=run, **fields)


def missed(*plans: Plan, **asked: Any) -> NearMiss | None:
    return answer_of(plans, Question(**asked), is_batch_free=False).near_miss


def test_of_plans_that_are_a_little_risky_the_safest_is_named_with_its_option() -> None:
    risky, safest = plan(10, p_oom=0.09), plan(12, p_oom=0.0243)
    found = missed(risky, safest)
    assert found is not None and found.id == safest.id
    assert found.options == "--max-oom-risk 0.03"
    assert "2.5 % chance of running out of memory, over the 2 % accepted" in found.reason
    accepted = answer_of([risky, safest], Question(money=Money(max_oom=0.03)), is_batch_free=False)
    assert accepted.recommended is not None and accepted.recommended.id == safest.id
    assert accepted.near_miss is None


def test_beside_a_plan_that_gpuplan_does_not_run_the_nearest_that_it_does_is_named() -> None:
    nf4 = plan(10, runnable=False, frozen_precision="nf4", p_oom=0.004)
    own = plan(12, p_oom=0.0243)
    answer = answer_of([nf4, own], Question(), is_batch_free=False)
    assert answer.recommended is not None and answer.recommended.id == nf4.id
    assert "gpuplan cannot run it, a script of your own with bitsandbytes can" in (
        answer.recommended.reason
    )
    assert answer.near_miss is not None and answer.near_miss.id == own.id
    assert answer.near_miss.options == "--runnable --max-oom-risk 0.03"


def test_a_plan_that_is_named_is_shown_even_among_few() -> None:
    others = [plan(10 + i, runnable=False) for i in range(5)]
    own = plan(20, p_oom=0.1)
    answer = answer_of([*others, own], Question(top=1), is_batch_free=False)
    assert answer.near_miss is not None and answer.near_miss.id in {p.id for p in answer.plans}


def test_what_is_recommended_and_run_has_no_near_miss() -> None:
    assert missed(plan(10), plan(5, p_oom=0.1)) is None
    assert missed(make_plan(p_oom=0.5)) is None, "without an amount of work"
    assert missed() is None
    assert missed(plan(10, runnable=False)) is None, "no other could take its place"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"needs_port": True}, "runs the file only after a port"),
        ({"needs_build": "none"}, "needs torch built from source"),
        ({"needs_build": "older"}, "needs an older release of torch"),
        ({"p_oom": 0.6}, "has a 60 % chance of running out of memory, over the 2 % accepted"),
    ],
)
def test_where_nothing_helps_no_option_is_promised(changes: dict[str, Any], text: str) -> None:
    found = missed(plan(10, **changes))
    assert found is not None and found.options is None
    assert found.reason == text


def test_months_need_a_deadline_that_allows_them() -> None:
    found = missed(plan(10, hours=100 * 24.0))
    assert found is not None and found.options == "--deadline 121d"
    assert "takes 100 days, more than 60 without a deadline" in found.reason
    assert not list(obstacles(plan(10, hours=100 * 24.0), Money(deadline_s=200 * 86400.0)))


def test_two_obstacles_are_both_named() -> None:
    found = missed(plan(10, hours=100 * 24.0, p_oom=0.05))
    assert found is not None and found.options == "--max-oom-risk 0.05 --deadline 121d"
