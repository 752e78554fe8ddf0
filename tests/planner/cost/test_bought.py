"""What stops a plan's run where its machines are bought in another way than planned."""

import pytest
from answers import make_plan, make_run, make_stops

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Purchase
from gpuplan.planner.cost.bought import (
    SHORTEST_INTERVAL_S,
    checkpoint_every_s,
    slower_than_steps,
    stops_bought,
)
from gpuplan.planner.plan.plan import Plan

CATALOGUE = load_catalogue()


def planned(**changes: float) -> Plan:
    """Return a plan with stops."""
    return make_plan(run=make_run()).model_copy(update={"stops": make_stops(**changes)})


def test_spot_machines_are_stopped_more_often_than_the_same_on_demand() -> None:
    plan = planned()
    accelerator = CATALOGUE.accelerators[plan.offer.accelerator]
    owned = stops_bought(plan, accelerator, "on-demand")
    spot = stops_bought(plan, accelerator, "spot")
    assert owned is not None and spot is not None
    assert spot.per_hour > owned.per_hour and spot.wait_s > owned.wait_s == 0
    assert spot.checkpoint_bytes == owned.checkpoint_bytes == 1e10
    assert checkpoint_every_s(spot) <= checkpoint_every_s(owned)


def test_a_notice_saves_the_work_of_what_gpuplan_runs_itself() -> None:
    plan = planned().model_copy(update={"runnable": True})
    accelerator = CATALOGUE.accelerators[plan.offer.accelerator]

    def saved(of: Plan, purchase: Purchase = "spot", own_script: bool = False) -> float:
        stops = stops_bought(of, accelerator, purchase, own_script=own_script)
        assert stops is not None
        return stops.saved_share

    assert saved(plan) > 0
    assert saved(plan, own_script=True) == saved(plan, "on-demand") == 0
    assert saved(plan.model_copy(update={"runnable": False})) == 0


def test_a_plan_of_a_version_that_did_not_look_has_none() -> None:
    plan = make_plan(run=make_run())
    assert stops_bought(plan, CATALOGUE.accelerators["H100-80GB-SXM"], "spot") is None


@pytest.mark.parametrize(("stall_s", "per_hour"), [(0.001, 100.0), (60.0, 1e-6)])
def test_a_launch_neither_only_saves_nor_never(stall_s: float, per_hour: float) -> None:
    stops = planned(stall_s=stall_s, per_hour=per_hour).stops
    assert stops is not None
    assert SHORTEST_INTERVAL_S <= checkpoint_every_s(stops) <= 1800


def test_a_run_takes_more_than_its_steps_and_the_more_the_more_it_is_stopped() -> None:
    calm, rough = (
        planned().stops,
        planned(per_hour=0.05, per_hour_low=0.02, per_hour_high=0.1).stops,
    )
    days_s = 10 * 86_400.0
    assert slower_than_steps(None, days_s) == 1.0
    assert 1.02 < slower_than_steps(calm, days_s) < slower_than_steps(rough, days_s) < 1.5
    assert slower_than_steps(calm, 1.0) == slower_than_steps(calm, 3600.0) < 1.15
