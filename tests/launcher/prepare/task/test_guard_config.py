"""From a plan and what is asked for to the orders that travel with a launch."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from answers import make_offer, make_plan, make_run
from launches import BUCKET, RUN_ID

from gpuplan.catalog.errors import LimitError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.guard.orders import Busy, Orders
from gpuplan.launcher.prepare.request import GuardRequest, LaunchRequest
from gpuplan.launcher.prepare.task.guard_config import orders, refuse_no_room, smoke_steps, tail_s
from gpuplan.launcher.skypilot.placement import places
from gpuplan.planner.cost.launch_cost import launch_cost
from gpuplan.planner.cost.start_up import startups
from gpuplan.planner.goodput.expected_run import mean_training_s
from gpuplan.planner.plan.plan import Estimated

ASKED = datetime(2026, 11, 21, 23, 26, 38, tzinfo=UTC)


def made(*, regions: tuple[str, ...] = (), nodes: int = 1, **asked: Any) -> Orders:
    plan = make_plan(run=make_run(), nodes=nodes, offer=make_offer())
    request = LaunchRequest(**{"outputs": BUCKET, "regions": regions, **asked})
    tried = places(plan, load_catalogue(), spot=request.buys_spot(plan), regions=regions)
    assert plan.run is not None
    step = plan.step_time_s
    steps = request.steps or plan.run.steps
    training = Estimated(
        value=steps * step.value, low=steps * step.low, high=steps * step.high, basis=step.basis
    )
    cost = launch_cost(
        training,
        nodes=nodes,
        usd_per_hour=tried[0].usd_per_hour,
        dearest_usd_per_hour=max(one.usd_per_hour for one in tried),
        billing=None,
    )
    return orders(plan, request, cost, tried, run_id=RUN_ID, requested_at=ASKED)


def test_nothing_asked_for_holds_the_projection_and_the_heartbeat_alone() -> None:
    plain = made()
    assert plain.requested_at_s == ASKED.timestamp()
    assert plain.tail_s == 6 * 60.0
    assert plain.own_runner
    assert (plain.heartbeat_timeout_s, plain.startup_timeout_s) == (900.0, 3600.0)
    assert (plain.max_cost_usd, plain.max_hours, plain.min_gpu_utilization) == (None,) * 3
    assert plain.projection is not None and plain.projection.action == "ask"
    assert Orders.from_json(plain.to_json()) == plain


def test_what_is_asked_for_is_held() -> None:
    guard = GuardRequest(
        max_cost_usd=Decimal("400.50"),
        max_hours=20.0,
        min_gpu_utilization=0.3,
        idle_for_s=600.0,
        on_projection="continue",
        smoke=True,
    )
    held = made(guard=guard, deadline=ASKED, steps=1234)
    assert held.max_cost_usd == 400.5
    assert held.max_hours == 20.0
    assert held.min_gpu_utilization == Busy(0.3, 600.0)
    assert held.smoke
    assert held.deadline_s == ASKED.timestamp()
    assert held.projection is not None
    assert (held.projection.total_steps, held.projection.action) == (1234, "continue")


def test_every_node_and_every_place_has_its_price() -> None:
    two = made(nodes=2, regions=("us-east-1", "eu-central-1"))
    rates = two.usd_per_hour_at
    assert set(rates) == {"aws/us-east-1", "aws/eu-central-1"}
    assert two.usd_per_hour == max(rates.values())
    one = made(regions=("us-east-1",))
    assert rates["aws/us-east-1"] == pytest.approx(2 * one.usd_per_hour)


def test_nodes_that_fill_a_bucket_wait_for_each_other() -> None:
    assert made(nodes=2).others_upload
    assert not made().others_upload
    assert not made(nodes=2, outputs=None, shared="/mnt/nfs").others_upload


def test_spot_machines_alone_are_asked_for_notices() -> None:
    assert not made().notices
    # Its guard listens, whatever the plan was made for.
    assert made(spot=True, regions=("us-east-1",)).notices
    assert not made(spot=False).notices


def test_the_interval_holds_the_start_and_the_end_of_the_machines() -> None:
    held = made()
    plan, wanted = make_plan(run=make_run()), held.projection
    assert plan.run is not None and wanted is not None
    start_s = sum(one.value_s for one in startups())
    slow_s = sum(one.high_s for one in startups())
    step, steps = plan.step_time_s, plan.run.steps

    def usd(seconds: float) -> float:
        return (seconds + held.tail_s) * held.usd_per_s

    cent = pytest.approx
    mean_s = mean_training_s(step)
    assert wanted.expected_usd == cent(usd(start_s + steps * mean_s), abs=0.03)
    assert wanted.low_usd == cent(usd(start_s + steps * step.low), abs=0.03)
    assert wanted.high_usd == cent(usd(slow_s + steps * step.high), abs=0.03)


def test_a_script_of_ones_own_need_not_beat() -> None:
    own = made(command="train.py")
    assert not own.own_runner
    assert own.heartbeat_timeout_s is None and own.startup_timeout_s is None


def test_fetching_keeps_the_machines_for_an_hour() -> None:
    assert tail_s(LaunchRequest(fetch="/tmp/x")) == 61 * 60.0


@pytest.mark.parametrize(
    "guard", [GuardRequest(max_cost_usd=Decimal(2)), GuardRequest(max_hours=0.1)]
)
def test_a_limit_that_leaves_nothing_to_train_with_is_refused(guard: GuardRequest) -> None:
    with pytest.raises(LimitError, match="leaves nothing to train") as caught:
        made(guard=guard)
    assert caught.value.exit_code == 4


def test_a_start_that_was_seen_counts_in_place_of_the_assumed_one() -> None:
    held = replace(made(guard=GuardRequest(max_hours=9)), max_hours=0.2)
    with pytest.raises(LimitError, match="10 minutes to start"):
        refuse_no_room(held)
    refuse_no_room(held, known_start_s=60.0)
    with pytest.raises(LimitError, match="10 minutes to start"):
        refuse_no_room(held, known_start_s=9000.0)


def test_a_cap_below_the_least_bill_is_refused_and_one_of_just_that_is_not() -> None:
    held = replace(made(), usd_per_hour=24.4, minimum_s=3600.0, increment_s=1.0)
    with pytest.raises(LimitError, match=r"cost \$24\.40 .*60 minutes are billed at least"):
        refuse_no_room(replace(held, max_cost_usd=24.0))
    refuse_no_room(replace(held, max_cost_usd=24.4))
    refuse_no_room(replace(held, max_cost_usd=12.0, minimum_s=0.0))


def test_a_smoke_run_makes_the_steps_of_the_projection() -> None:
    projection = made().projection
    assert projection is not None
    assert smoke_steps() == projection.settled + projection.steps == 33
