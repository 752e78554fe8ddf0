"""A deadline: on-demand machines behind spot ones, and what that may cost."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from launchable import NOW, given_plan, prepared
from launches import BUCKET

from gpuplan.launcher.prepare.money.higher_prices import at_higher_prices
from gpuplan.launcher.prepare.request import LaunchRequest
from gpuplan.launcher.prepare.task.guard_config import restart_s
from gpuplan.launcher.skypilot.prices import PriceDifference


def test_a_deadline_lets_spot_machines_be_replaced(folder: Path) -> None:
    soon = NOW.astimezone() + timedelta(hours=12)
    request = LaunchRequest(outputs=BUCKET, spot=True, deadline=soon)
    launch = prepared(given_plan(), request)
    first, second = launch.task.config, launch.task.then
    assert second is not None
    assert first["resources"]["use_spot"] is True
    assert first["resources"]["ordered"] == [
        {"infra": "aws/us-east-1"},
        {"infra": "aws/us-east-1", "use_spot": False},
    ]
    assert len(launch.all_places) == len(first["resources"]["ordered"])
    assert "use_spot" not in second["resources"]
    assert second["resources"]["infra"] == "aws/us-east-1"
    stages = [task.pop("envs")["GPUPLAN_STAGE"] for task in (first, second)]
    assert stages == ["spot", "on-demand"]
    for task in (first, second):
        del task["resources"], task["name"]
    assert first == second
    assert launch.answer().then is not None
    dearer = PriceDifference(
        infra="aws/us-east-1",
        ours_usd_per_hour=launch.all_places[0].usd_per_hour,
        skypilot_usd_per_hour=launch.all_places[0].usd_per_hour * 2,
    )
    # On-demand machines cost still more, and the worst case is theirs.
    counted = at_higher_prices(launch, (dearer,))
    assert counted.cost.usd_worst == launch.cost.usd_worst
    assert counted.fallback == launch.fallback
    assert counted.places[0].usd_per_hour == launch.places[0].usd_per_hour * 2
    spot = counted.orders.spot_usd_per_hour_at["aws/us-east-1"]
    added = float(launch.places[0].paid_usd_per_hour)
    before = launch.orders.spot_usd_per_hour_at["aws/us-east-1"]
    assert spot == pytest.approx(before + added)
    assert counted.orders.usd_per_hour_at == launch.orders.usd_per_hour_at
    assert counted.orders.hand_over == launch.orders.hand_over is not None


def test_what_a_deadline_may_cost(folder: Path) -> None:
    soon = NOW.astimezone() + timedelta(hours=12)
    request = LaunchRequest(outputs=BUCKET, spot=True, deadline=soon, has_controller=False)
    launch = prepared(given_plan(), request)
    on_demand = prepared(given_plan(), replace(request, spot=False))
    (spot,), (other,) = launch.places, launch.fallback
    assert launch.cost.usd_worst is not None and on_demand.cost.usd_worst is not None
    again = launch.cost.usd_worst - on_demand.cost.usd_worst
    assert float(again) == pytest.approx(float(other.usd_per_hour) * restart_s() / 3600, abs=0.02)
    assert launch.cost.usd_expected is not None and on_demand.cost.usd_expected is not None
    assert launch.cost.usd_expected < on_demand.cost.usd_expected
    orders = launch.orders
    assert orders.usd_per_hour_at == {"aws/us-east-1": float(other.usd_per_hour)}
    assert orders.spot_usd_per_hour_at == {"aws/us-east-1": float(spot.usd_per_hour)}
    assert orders.hand_over is not None
    assert orders.hand_over.total_steps == 19_073
    assert on_demand.orders.hand_over is None


def test_without_time_to_lose_machines_nothing_is_bought_on_spot(folder: Path) -> None:
    soon = NOW.astimezone() + timedelta(hours=3)
    launch = prepared(given_plan(), LaunchRequest(outputs=BUCKET, spot=True, deadline=soon))
    assert launch.task.then is None
    assert "use_spot" not in launch.task.config["resources"]
    assert not launch.request.buys_spot(launch.plan)
    assert any("bought on demand" in note for note in launch.notes)
