"""What SkyPilot's controller of spot jobs adds to a launch, and to what a cap holds."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_plan, make_run, make_stops
from launchable import NOW, given_plan, prepared
from launches import BUCKET

from gpuplan.catalog.text.money import format_money
from gpuplan.launcher.guard.decisions.spending import open_account
from gpuplan.launcher.guard.decisions.verdicts import Reading, over_limit
from gpuplan.launcher.prepare.intent import intent, reserved_usd
from gpuplan.launcher.prepare.request import GuardRequest, LaunchRequest
from gpuplan.launcher.skypilot.user_settings import AwsSettings
from gpuplan.planner.cost.launch_cost import CONTROLLER_IDLE_HOURS
from gpuplan.planner.cost.run_cost import CENT


@pytest.mark.parametrize(
    ("spot", "has_controller", "is_paid"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_a_spot_launch_counts_its_controller(
    folder: Path, spot: bool, has_controller: bool, is_paid: bool
) -> None:
    plan = make_plan(run=make_run()).model_copy(update={"stops": make_stops()})
    request = LaunchRequest(outputs=BUCKET, spot=spot, has_controller=has_controller)
    launch = prepared(given_plan(plan), request)
    record = intent(launch, now=lambda: NOW)
    lines = [line for line in launch.cost.lines if line.name == "SkyPilot's controller"]
    assert any("counted as if it ran this launch alone" in one for one in launch.notes) is is_paid
    assert bool(lines) is (record.controller_usd_per_hour is not None) is is_paid
    machines = max(place.paid_usd_per_hour for place in launch.all_places) * plan.nodes
    rate = record.controller_usd_per_hour or 0
    assert launch.orders.usd_per_hour == pytest.approx(float(machines + rate))
    if is_paid:
        assert (launch.cost.hours_expected or 0) < lines[0].quantity
        assert lines[0].usd > 0
        assert launch.cost.usd_expected == sum(line.usd for line in launch.cost.lines)


def test_a_cap_holds_the_minutes_of_a_controller_that_waits_for_more_jobs(folder: Path) -> None:
    guard = GuardRequest(max_cost_usd=Decimal(100))
    # The machines go at once, and the controller's ten minutes are then all that is left to pay.
    request = LaunchRequest(outputs=BUCKET, spot=True, autodown_minutes=0, guard=guard)
    launch = prepared(given_plan(), request)
    rate = intent(launch, now=lambda: NOW).controller_usd_per_hour
    held, idle = launch.orders, CONTROLLER_IDLE_HOURS
    assert rate and held.after_usd == pytest.approx(float(rate * idle))
    account = open_account(held, [], boot_s=NOW.timestamp(), now_s=NOW.timestamp())
    left_usd = 100 - float(rate * idle) - held.tail_s * held.usd_per_s
    for off_s, ends in ((-1, False), (1, True)):
        paid_s = left_usd / held.usd_per_s + off_s
        verdict = over_limit(held, account, Reading(), paid_s=paid_s, now_s=0.0)
        assert (verdict is not None) is ends
    # Limits of a project or a period count them in hours too; without a controller there are none.
    hours = replace(request, guard=GuardRequest(max_hours=2.5))
    alone = replace(hours, has_controller=False)
    own, other = prepared(given_plan(), hours), prepared(given_plan(), alone)
    counted, without = reserved_usd(own), reserved_usd(other)
    assert counted is not None and without is not None
    assert counted - without == pytest.approx(rate * (Decimal("2.5") + idle), abs=Decimal("0.011"))
    assert other.orders.after_usd == 0


DEADLINE = NOW.astimezone() + timedelta(days=30)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            LaunchRequest(outputs=BUCKET, spot=True),
            "Nothing ends that but `gpuplan down`: --deadline or --max-cost would",
        ),
        (
            LaunchRequest(outputs=BUCKET, spot=True, guard=GuardRequest(max_cost_usd=Decimal(200))),
            "Past --max-cost (after {days:,.1f} days of the controller alone) the next command",
        ),
        (
            LaunchRequest(outputs=BUCKET, spot=True, deadline=DEADLINE),
            "Past the deadline the next command that looks ends it",
        ),
        (
            LaunchRequest(outputs=BUCKET, spot=True, has_controller=False),
            "SkyPilot waits without end, and nothing is billed for it",
        ),
    ],
)
def test_a_wait_for_machines_is_told_with_what_it_costs_and_what_ends_it(
    folder: Path, request_: LaunchRequest, said: str
) -> None:
    launch = prepared(given_plan(), request_)
    (note,) = (one for one in launch.notes if "SkyPilot waits" in one)
    rate = intent(launch, now=lambda: NOW).controller_usd_per_hour
    if rate is not None:
        assert f"${rate:,.2f} an hour, ${rate * 24:,.2f} a day" in note
        said = said.format(days=200 / rate / 24)
    assert said in note
    on_demand = prepared(given_plan(), replace(request_, spot=False))
    assert not any("SkyPilot waits" in one for one in on_demand.notes)


@pytest.mark.parametrize(("spot", "machines"), [(False, 1), (True, 2)])
def test_public_addresses_are_said_beside_the_sums(folder: Path, spot: bool, machines: int) -> None:
    launch = prepared(given_plan(), LaunchRequest(outputs=BUCKET, spot=spot))
    (note,) = (one for one in launch.notes if "not in these sums" in one)
    usd = machines * Decimal("0.005") * Decimal(str(launch.cost.hours_expected))
    assert f"public addresses {format_money(usd.quantize(CENT))}" in note
    inside = LaunchRequest(outputs=BUCKET, spot=spot, aws=AwsSettings(internal_ips=True))
    assert not any("public addresses" in one for one in prepared(given_plan(), inside).notes)
