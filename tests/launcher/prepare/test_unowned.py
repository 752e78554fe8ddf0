"""What a person is told of machines that nobody owns, and what ends them on which cloud."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_offer, make_plan, make_run
from launches import BUCKET, RUN_ID

from gpuplan.launcher.guard.orders import Orders
from gpuplan.launcher.prepare.money.power_off import POWER_OFF, power_off, powered_off_on
from gpuplan.launcher.prepare.money.unowned_cost import unowned_notes
from gpuplan.launcher.prepare.request import GuardRequest, LaunchRequest
from gpuplan.launcher.prepare.task.guard_config import SETUP_S, orders
from gpuplan.launcher.skypilot.clouds import CLOUDS
from gpuplan.launcher.skypilot.placement import Place
from gpuplan.planner.cost.launch_cost import launch_cost
from gpuplan.planner.plan.plan import Estimated

ASKED = datetime(2026, 11, 21, 23, 26, 38, tzinfo=UTC)
DOCS = Path(__file__).parents[3] / "docs" / "launching.md"


def place(cloud: str) -> Place:
    return Place(cloud=cloud, region="here", zone=None, usd_per_hour=Decimal(10))


def made(*clouds: str, image: str | None = None, hours: float | None = None) -> Orders:
    plan = make_plan(run=make_run(), offer=make_offer())
    request = LaunchRequest(outputs=BUCKET, image=image, guard=GuardRequest(max_hours=hours))
    training = Estimated(value=3600.0, low=3600.0, high=7200.0, basis="analytic")
    dear = Decimal(10)
    cost = launch_cost(
        training, nodes=1, usd_per_hour=dear, dearest_usd_per_hour=dear, billing=None
    )
    tried = tuple(place(cloud) for cloud in clouds)
    return orders(plan, request, cost, tried, run_id=RUN_ID, requested_at=ASKED)


def notes(
    *clouds: str, image: str | None = None, hours: float | None = None, disk_may_go: bool = False
) -> str:
    tried = tuple(place(cloud) for cloud in clouds)
    held = made(*clouds, image=image, hours=hours)
    return "\n".join(unowned_notes(held, tried, image=image, tpu=False, disk_may_go=disk_may_go))


def test_every_cloud_that_skypilot_reaches_has_a_row_with_its_source() -> None:
    names = {"Kubernetes": "k8s"}
    assert set(POWER_OFF) == {names.get(cloud, cloud.lower()) for cloud in CLOUDS}
    for row in POWER_OFF.values():
        assert row.still_billed and row.source and row.checked.year >= 2026


def test_only_where_the_price_ends_a_machine_powers_itself_off() -> None:
    assert powered_off_on(list(POWER_OFF)) == ("aws", "gcp")
    assert powered_off_on(["gcp"], tpu=True) == ()
    assert power_off("elsewhere").ends_compute is None
    timer = made("azure", "aws").timer
    assert timer is not None and timer.power_off_on == ("aws",)
    inside = made("aws", image="docker:torch").timer
    assert inside is not None and inside.power_off_on == ()


def test_a_limit_before_the_idle_time_is_all_that_is_said() -> None:
    held = replace(made("aws", hours=0.5), grace_s=60.0)
    assert held.timer is not None
    held = replace(held, timer=replace(held.timer, margin_s=600.0))
    said = " ".join(unowned_notes(held, (place("aws"),), image=None, tpu=False, disk_may_go=False))
    # Half an hour, two graces, the tear-down, and the last checkpoint.
    assert "power themselves off after 0.7 h ($7.17) at the latest;" in said
    assert "without set-up" not in said


def test_a_machine_that_ends_itself_says_when_and_what_is_left() -> None:
    said = notes("aws", hours=10.0)
    assert "set-up is stopped after 2.5 h" in said
    # Ten hours, two graces, an hour of uploads, the tear-down, and the last checkpoint.
    assert "after 3.0 h ($30.00) without set-up or a run" in said
    assert "at the latest after 11.8 h ($117.50)" in said
    assert "its disk" in said and "gpuplan reconcile" in said


def test_on_aws_the_disk_may_go_with_the_machine() -> None:
    said = notes("aws", "gcp", disk_may_go=True)
    on_aws, on_gcp = (line for line in said.splitlines() if "power themselves off" in line)
    assert "EC2 then terminates them with their disks" in on_aws
    assert "if it cannot, it says so, and their disks stay billed" in on_aws
    assert "its disks and reserved addresses" in on_gcp


def test_a_machine_that_cannot_end_itself_says_so_and_what_to_do() -> None:
    for cloud in ("azure", "lambda", "runpod", "verda"):
        said = notes(cloud, hours=10.0)
        assert f"machines of {cloud} do not end themselves" in said
        assert "$10.00 an hour without end" in said
        assert "gpuplan reconcile" in said and "console" in said
    assert "do not end themselves" in notes("aws", image="docker:torch")


def test_places_of_several_clouds_are_told_apart() -> None:
    said = notes("aws", "lambda")
    assert "machines of aws power themselves off" in said
    assert "machines of lambda do not end themselves" in said


def test_without_a_limit_a_run_has_an_end_far_beyond_what_is_predicted() -> None:
    held = made("aws")
    assert held.timer is not None and held.timer.default_end_s is not None
    assert held.timer.setup_s == SETUP_S < held.timer.unowned_s
    assert held.timer.default_end_s > 24 * 3600 + 2 * 7200
    goes_on = replace(held, projection=None)
    said = unowned_notes(goes_on, (place("aws"),), image=None, tpu=False, disk_may_go=False)
    assert any("at no set time while a guard runs (--max-hours sets one)" in one for one in said)


def test_machines_that_cost_nothing_need_no_word() -> None:
    free = replace(place("ssh"), usd_per_hour=Decimal(0))
    assert unowned_notes(made("aws"), (free,), image=None, tpu=False, disk_may_go=True) == ()


@pytest.mark.parametrize("cloud", POWER_OFF)
def test_the_page_has_every_row(cloud: str) -> None:
    row = POWER_OFF[cloud]
    ends = {True: "yes", False: "no", None: "not known"}[row.ends_compute]
    text = " ".join(DOCS.read_text(encoding="utf-8").split())
    line = f"| `{cloud}` | {ends} | {row.still_billed} | {row.source} | {row.checked} |"
    assert line in text
