"""What a person would rent: sensible plans, and the lightest of them with its reason."""

from decimal import Decimal
from typing import Any

import pytest
from answers import make_offer, make_plan, make_run

from gpuplan.catalog.types import CPU_PREFIX
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Money
from gpuplan.planner.search.answer.ranking import headlines
from gpuplan.planner.search.answer.recommended import keeps_limits, recommended, sensible

ANY = Money()


def plan(usd: float, hours: float, *, nodes: int = 1, position: int = 1, **changes: Any) -> Plan:
    run = make_run(
        hours=hours, hours_low=hours, hours_high=hours, usd=usd, usd_low=usd, usd_high=usd
    )
    # The offer only makes the plans, and so their ids, differ.
    offer = make_offer(usd_per_hour=usd / hours / nodes)
    return make_plan(position, run=run, nodes=nodes, offer=offer, runnable=True, **changes)


def chosen(*plans: Plan, money: Money = ANY) -> tuple[Plan, str]:
    found = recommended(sensible(plans, money), money)
    assert found is not None
    return next(one for one in plans if one.id == found.id), found.reason


def test_a_little_dearer_and_much_faster_wins_and_says_so() -> None:
    slow, fast = plan(1490, 53.0), plan(1620, 29.0, position=2)
    money = Money(deadline_s=10 * 86400.0)
    best, reason = chosen(slow, fast, money=money)
    assert best is fast
    assert reason == "9 % above the cheapest, 1.8 times as fast; 99.9 % sure to fit"


def test_what_saves_nobody_any_time_is_not_worth_its_money() -> None:
    cheap, fast = plan(3.6, 0.9), plan(9.1, 0.2, position=2)
    assert chosen(cheap, fast)[0] is cheap


def test_days_on_one_old_device_are_not_worth_the_tens_of_dollars_they_save() -> None:
    old, new = plan(18, 130.0), plan(68, 4.0, position=2)
    best, reason = chosen(old, new)
    assert best is new
    assert reason == (
        "31 times as fast, for $50 more than the cheapest, which takes 5 days; 99.9 % sure to fit"
    )
    _, reason = chosen(plan(0.2, 1.36), plan(0.81, 0.3, position=2))
    assert "for $0.61 more than the cheapest, which takes 1.5 h" in reason
    # Of machines of one's own too: neither costs anything, and one ends today.
    owned = plan(0, 130.0), plan(0, 4.0, position=2)
    assert chosen(*owned)[0] is owned[1]


def test_several_nodes_must_be_worth_the_quarter_of_an_hour_they_take() -> None:
    two, one = plan(13, 1.9, nodes=2), plan(12, 3.7, position=2)
    assert chosen(two, one)[0] is one
    large = plan(1300, 36.0, nodes=2), plan(1200, 90.0, position=2)
    assert chosen(*large)[0] is large[0]


def test_another_build_of_torch_must_be_worth_the_quarter_of_an_hour_it_takes() -> None:
    """Cents are not worth to look whether all that a file imports is to be had for ROCm."""
    other, usual = plan(0.6, 0.3, needs_build="other"), plan(0.5, 0.6, position=2)
    assert chosen(other, usual)[0] is usual
    # As fast, and a little dearer: what is left is the build.
    best, reason = chosen(plan(0.5, 0.3, needs_build="other"), plan(0.7, 0.3, position=2))
    assert best.position == 2
    assert reason.startswith("40 % above the cheapest, runs with the torch that pip brings; ")


def test_the_build_of_torch_is_named_where_speed_alone_would_not_be_worth_its_price() -> None:
    """ "1.1 times as fast, for $0.33 more than the cheapest" was no reason to pay four times."""
    other = plan(0.1, 0.9, needs_build="other")
    best, reason = chosen(other, plan(0.43, 0.7, position=2))
    assert best.position == 2
    assert reason.startswith("runs with the torch that pip brings, 1.2 times as fast, for $0.3")
    slow = plan(18, 130.0, needs_build="other")
    _, reason = chosen(slow, plan(68, 4.0, position=2))
    assert reason.startswith("31 times as fast, for $50 more"), "worth it with any torch"


def test_a_cheapest_plan_of_minutes_is_told_in_minutes() -> None:
    best, reason = chosen(plan(0.05, 0.3, needs_build="other"), plan(0.2, 0.29, position=2))
    assert best.position == 2
    assert "for $0.15 more than the cheapest, which takes 28 min" in reason
    large = plan(600, 30.0, needs_build="other"), plan(700, 30.0, position=2)
    assert chosen(*large)[0] is large[0]


def test_a_week_of_a_large_job_weighs_by_its_cost() -> None:
    """A day weighs a seventh of the cost, where that is more than what somebody's minutes cost."""
    week, day = plan(1000, 168.0), plan(1900, 24.0, position=2)
    assert chosen(week, day)[0] is week
    assert chosen(week, plan(1600, 24.0, position=2))[0] is not week


def test_more_nodes_must_be_worth_their_risk() -> None:
    one, two = plan(1600, 29.0), plan(1650, 14.6, nodes=2, position=2)
    assert chosen(one, two, money=Money(deadline_s=10 * 86400.0))[0] is one
    month = plan(40_000, 720.0)
    week = plan(41_000, 92.0, nodes=8, position=2)
    assert chosen(month, week)[0] is week


@pytest.mark.parametrize(
    "changes",
    [
        {"needs_port": True},
        {"p_oom": 0.03},
        {"offer": make_offer(accelerator=f"{CPU_PREFIX}EPYC", usd_per_hour=0.5)},
    ],
)
def test_what_nobody_would_rent_is_not_sensible(changes: dict[str, Any]) -> None:
    offered = {"runnable": True, "run": make_run(), **changes}
    assert sensible([make_plan(**offered)], ANY) == ()


def test_a_plan_that_gpuplan_runs_comes_before_one_that_it_does_not() -> None:
    other = plan(90, 10.0).model_copy(update={"runnable": False})
    own = plan(100, 10.0, position=2)
    assert sensible([other, own], ANY) == (own,)
    assert sensible([other], ANY) == (other,)


def test_months_and_twice_the_money_need_a_deadline_that_asks_for_them() -> None:
    cheap, dear = plan(100, 50.0), plan(300, 1.0, position=2)
    endless = plan(80, 70 * 24.0, position=3)
    assert sensible([cheap, dear, endless], ANY) == (cheap,)
    asked = Money(deadline_s=80 * 86400.0)
    assert sensible([cheap, dear, endless], asked) == (cheap, dear, endless)


def test_a_handful_of_steps_is_no_training() -> None:
    few = plan(10, 1.0)
    few = few.model_copy(update={"run": make_run(steps=3)})
    many = plan(12, 1.0, position=2)
    assert sensible([few, many], ANY, is_batch_free=True) == (many,)
    assert few in sensible([few, many], ANY)


def test_nothing_is_recommended_without_work_or_price() -> None:
    assert recommended([make_plan()], ANY) is None
    unpriced = make_run(usd=None, usd_low=None, usd_high=None)
    assert recommended([make_plan(run=unpriced)], ANY) is None
    assert recommended([], Money(budget_usd=Decimal(5))) is None


def test_of_the_users_own_machines_without_a_price_the_fastest_is_recommended() -> None:
    def own(hours: float, position: int, **changes: Any) -> Plan:
        run = make_run(hours=hours, usd=None, usd_low=None, usd_high=None)
        offer = make_offer(usd_per_hour=None, price_basis="owned", region=f"room-{position}")
        return make_plan(position, run=run, offer=offer, p_oom=0.001, **changes)

    slow, fast = own(9.0, 1), own(2.0, 2)
    found = recommended([slow, fast], ANY)
    assert found is not None and found.id == fast.id
    assert found.reason.startswith("the fastest on what is your own, whose price is not known")
    assert "sure to fit" in found.reason
    # Beside one with a price, what may cost anything is not recommended.
    best = recommended([slow, fast, plan(10, 20.0, position=3)], ANY)
    assert best is not None and best.position == 3


def test_certainty_is_never_rounded_up() -> None:
    best = recommended([plan(10, 1.0, p_oom=0.0)], ANY)
    assert best is not None and "99.9 % sure" in best.reason


def test_of_equally_light_plans_the_first_is_taken() -> None:
    one, other = plan(10, 1.0, position=0), plan(10, 1.0, position=0, layout="dp8")
    assert chosen(one, other)[0] is one
    assert chosen(other, one)[0] is other


def test_a_slower_plan_says_what_it_has_instead() -> None:
    reserved = plan(100, 10.0, nodes=1).model_copy(update={"usually_reserved": True})
    other = plan(105, 12.0, position=2)
    best, reason = chosen(reserved, other)
    assert best is other
    assert "usually had without a reservation" in reason and "nodes" not in reason


def test_machines_that_cost_nothing_have_no_gap() -> None:
    free = plan(0.0, 10.0)
    found = recommended([free], ANY)
    assert found is not None and found.gap_to_cheapest == 0.0


def test_the_gap_holds_for_costs_that_are_tiny() -> None:
    """Where limits say how much is trained, the cost is the reciprocal of the samples."""
    least = make_run(limited_by="budget", trained_samples=4e10)
    fewer = make_run(limited_by="budget", trained_samples=2e10, hours=1.0)
    plans = [
        make_plan(1, run=least, runnable=True, nodes=64),
        make_plan(2, run=fewer, runnable=True, offer=make_offer(region="eu-west-1")),
    ]
    found = recommended(plans, ANY)
    assert found is not None
    chosen_plan = next(one for one in plans if one.id == found.id)
    assert chosen_plan.run is not None and chosen_plan.run.trained_samples is not None
    expected = 4e10 / chosen_plan.run.trained_samples - 1
    assert found.gap_to_cheapest == pytest.approx(expected)


def limited(usd: float, hours: float, chance: float, **changes: Any) -> Plan:
    """Return a plan that keeps to the budget with a chance."""
    one = plan(usd, hours, **changes)
    assert one.run is not None
    run = one.run.model_copy(update={"budget_probability": chance})
    return one.model_copy(update={"run": run})


@pytest.mark.parametrize(
    ("usd", "chance", "is_taken"), [(104, 0.85, True), (104, 0.75, False), (115, 0.95, False)]
)
def test_a_surer_plan_is_taken_where_it_costs_nearly_the_same(
    usd: float, chance: float, is_taken: bool
) -> None:
    doubtful, surer = limited(100, 10.0, 0.55), limited(usd, 10.0, chance, position=2)
    best, reason = chosen(doubtful, surer, money=Money(budget_usd=Decimal(101)))
    assert (best is surer) == is_taken
    if is_taken:
        assert reason.startswith("4 % above the cheapest, surer to keep to what is allowed; ")
        assert reason.endswith("85 % sure to keep to the budget")
    else:
        assert reason.startswith("only 55 % sure to keep to the budget; the cheapest")


def test_a_plan_that_is_sure_enough_is_not_replaced() -> None:
    light, surer = limited(100, 10.0, 0.82), limited(101, 10.0, 0.99, position=2)
    assert chosen(light, surer)[0] is light


def test_the_less_likely_of_two_limits_counts() -> None:
    both = limited(100, 10.0, 0.95)
    assert both.run is not None
    run = both.run.model_copy(update={"deadline_probability": 0.3})
    both = both.model_copy(update={"run": run})
    assert keeps_limits(both) == 0.3
    assert "only 30 % sure to keep to the deadline" in chosen(both)[1]
    assert "budget" not in chosen(both)[1]
    assert keeps_limits(plan(100, 10.0)) == 1.0


def test_without_work_the_fastest_is_not_the_cheapest_again() -> None:
    """Nobody waits for a job that was not named: 95 times the rate at 3 times the price counts."""

    def priced(usd: float, samples_per_s: float) -> Plan:
        offer = make_offer(usd_per_hour=usd)
        made = make_plan(run=None, whole_job=None, offer=offer, runnable=True)
        rates = {"samples_per_s": samples_per_s, "usd_per_million_samples": usd}
        return made.model_copy(update=rates)

    slow, fast = priced(5.0, 7.5), priced(15.0, 713.0)
    assert sensible([slow, fast], ANY) == (slow, fast)
    assert headlines(sensible([slow, fast], ANY)) == {
        "cheapest": slow.id,
        "smallest": slow.id,
        "fastest": fast.id,
    }
