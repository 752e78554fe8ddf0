"""The ways of paying as text: what is unknown is shown as unknown."""

from answers import make_ranked_estimate

from gpuplan.cli.render.ways_to_pay import render_ways
from gpuplan.planner.plan.plan import BuyingWay, WaysToPay


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
