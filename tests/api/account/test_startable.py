"""Plans held against what an account may start."""

import pytest
from answers import make_estimate, make_offer, make_plan, make_run
from fake_cloud import NOW, FakeCloud, quota

from gpuplan import api
from gpuplan.catalog.clouds.interface import Availability, CloudError, Quotas, Zones
from gpuplan.planner.plan.plan import Plan

P4D = "p4d.24xlarge"


def cloud(limit: float, *, region: str = "us-east-1", kind: str = P4D) -> FakeCloud:
    zones = Zones(region=region, instance_type=kind, zones=("a",))
    one = quota(limit, 0, region=region, instance_type=kind, per_instance=96.0)
    return FakeCloud(zones=Availability(zones=(zones,)), quotas=Quotas(quotas=(one,)))


def estimate(*plans: Plan):
    return make_estimate(*plans)


@pytest.fixture
def plans() -> tuple[Plan, Plan]:
    first = make_plan(run=make_run())
    second = make_plan(2, offer=make_offer(region="us-west-2"), run=make_run(usd=4000.0))
    return first, second


def test_what_cannot_be_started_comes_last(plans) -> None:
    first, second = plans
    offer = first.offer
    assert (offer.provider, offer.instance_type) == ("aws", P4D)
    east = cloud(0, region=offer.region)
    west = cloud(9999, region="us-west-2")
    both = FakeCloud(
        zones=Availability(zones=(*east.zones.zones, *west.zones.zones)),
        quotas=Quotas(quotas=(*east.quotas.quotas, *west.quotas.quotas)),
    )
    answer = api.by_capacity(estimate(first, second), clouds={"aws": both}, now=NOW)
    assert [one.id for one in answer.plans] == [second.id, first.id]
    assert [one.position for one in answer.plans] == [1, 2]
    assert [one.startable for one in answer.plans] == ["yes", "no"]
    assert answer.plans[1].why_not_startable == (
        "Running On-Demand P instances: 0 of 0 vCPU used, needs 96"
    )
    assert any("your account cannot start" in note for note in answer.notes)
    assert len(both.asked) == 3  # Zones, quota and reservations, once for both plans.


def test_a_plan_keeps_its_id_whatever_the_account_may_start(plans) -> None:
    first, _ = plans
    answer = api.by_capacity(
        estimate(first), clouds={"aws": cloud(9999, region=first.offer.region)}, now=NOW
    )
    [checked] = answer.plans
    assert checked.startable == "yes" and checked.id == first.id
    assert answer.notes == estimate(first).notes


def test_what_is_not_known_changes_no_order(plans) -> None:
    failed = FakeCloud(error=CloudError("no credentials"))
    answer = api.by_capacity(estimate(*plans), clouds={"aws": failed}, now=NOW)
    assert [one.id for one in answer.plans] == [one.id for one in plans]
    assert {one.startable for one in answer.plans} == {"unknown"}
    assert any("is not known: no credentials" in note for note in answer.notes)
