"""What a plan's numbers rest on, as `show` says it."""

from answers import make_offer, make_plan, make_run, make_stops

from gpuplan.cli.render.plans.explain import origins
from gpuplan.planner.plan.parts import SpotPriceRange
from gpuplan.planner.plan.plan import DataLine


def test_what_stops_a_run_is_said_with_its_source() -> None:
    stops = make_stops(per_hour=0.01, per_hour_low=0.003, per_hour_high=0.03, sources=("a paper",))
    data = DataLine(
        name="disks", quantity=1.0, unit="GB-month", unit_usd=None, usd=None, source="a list"
    )
    job = make_plan(run=make_run()).whole_job
    assert job is not None
    plan = make_plan(run=make_run()).model_copy(
        update={"stops": stops, "whole_job": job.model_copy(update={"data_lines": (data,)})}
    )
    found = origins(plan, None, {})
    assert found["stops"] == "0.01 an hour, 80 % 0.003 to 0.03: a paper"
    assert found["data"] == "disks: a list"


def test_a_spot_price_is_said_to_move_and_no_other_is() -> None:
    spot = origins(make_plan(offer=make_offer(purchase="spot", discount_percent=12)), None, {})
    assert spot["price"].endswith("no history of it is known")
    assert "12 % off" in spot["price"]
    plan = make_plan(offer=make_offer(purchase="spot"), run=make_run())
    assert plan.whole_job is not None
    moves = SpotPriceRange(low=0.8, high=1.25, prices=9, days=60)
    known = plan.model_copy(
        update={"whole_job": plan.whole_job.model_copy(update={"spot_price": moves})}
    )
    assert "×0.80 to 1.25 by your snapshots' prices of 9 days" in origins(known, None, {})["price"]  # noqa: RUF001
    assert "it moves" not in origins(make_plan(offer=make_offer()), None, {})["price"]
