"""The ways of paying as text: what is unknown is shown as unknown."""

from decimal import Decimal

from answers import make_plan, make_ranked_estimate, make_run

from gpuplan.cli.render.plans.explain import render_plan
from gpuplan.cli.render.plans.explain_markdown import plan_markdown
from gpuplan.cli.render.plans.ways_to_pay import render_ways
from gpuplan.planner.plan.plan import BuyingWay, DeadlineWay, WaysToPay


def test_every_way_has_a_row_and_an_unknown_price_a_mark() -> None:
    answer = make_ranked_estimate()
    plan = answer.plans[0]
    ways = (
        BuyingWay(way="on-demand", usd_per_hour=30.0),
        BuyingWay(
            way="committed",
            term_years=1.0,
            usd_per_hour=20.0,
            break_even_share=2 / 3,
            break_even_month=8,
        ),
        BuyingWay(way="committed", term_years=3.0, usd_per_hour=None),
    )
    answer = answer.model_copy(update={"ways_to_pay": (WaysToPay(plan_id=plan.id, ways=ways),)})
    lines = [line.plain for line in render_ways(answer, width=100)]
    assert plan.place in lines[1]
    assert "on demand" in lines[3] and "$30.00" in lines[3]
    assert "67 % use" in lines[4] and "month 8" in lines[4]
    assert "committed, 3 years" in lines[5] and lines[5].count("?") == 5
    assert all(len(line) <= 100 for line in lines)
    assert not list(render_ways(make_ranked_estimate(), width=100))


def test_a_deadline_has_a_line_for_each_way_in_every_view() -> None:
    ways = (
        DeadlineWay(
            way="spot", hours=30.0, spot_share=1.0, usd=Decimal("300.40"), deadline_probability=0.61
        ),
        DeadlineWay(
            way="on-demand", hours=24.0, spot_share=0.0, usd=None, deadline_probability=0.999
        ),
        DeadlineWay(
            way="spot-then-on-demand",
            hours=28.5,
            spot_share=0.7,
            usd=Decimal(410),
            usd_low=Decimal(330),
            usd_high=Decimal(520),
            deadline_probability=0.97,
        ),
    )
    plan = make_plan(run=make_run()).model_copy(update={"deadline_ways": ways})
    answer = make_ranked_estimate()
    listed = WaysToPay(plan_id=plan.id, ways=())
    answer = answer.model_copy(update={"plans": (plan,), "ways_to_pay": (listed,)})
    views = (
        [line.plain.strip() for line in render_plan(plan, answer, sources={}, width=100)],
        [line.plain.strip() for line in render_ways(answer, width=100)],
        [line.removeprefix("- ") for line in plan_markdown(plan, answer, sources={}).splitlines()],
    )
    for lines in views:
        at = next(i for i, line in enumerate(lines) if line.startswith("on spot "))
        spot, steady, mix = (" ".join(line.split()) for line in lines[at : at + 3])
        assert spot == "on spot 30 h expected $300 61 % sure to meet the deadline"
        assert steady == "on demand 24 h expected ? more than 99 % sure to meet the deadline"
        assert mix.startswith("on spot, then on demand 28.5 h expected $410 ($330–520) 97 % sure")
    without = make_plan(run=make_run())
    lines = [line.plain for line in render_plan(without, None, sources={}, width=100)]
    assert not any("sure to meet the deadline" in line for line in lines)
