"""A spot price moves: the worst case and the guard's cap are at the top of what was seen."""

from dataclasses import replace
from datetime import date, timedelta
from decimal import ROUND_UP, Decimal
from pathlib import Path

import pytest
from launchable import NOW, given_plan, prepared
from launches import BUCKET

from gpuplan.launcher.guard.decisions.spending import open_account
from gpuplan.launcher.guard.decisions.verdicts import Reading, over_limit
from gpuplan.launcher.guard.orders import Orders
from gpuplan.launcher.prepare.intent import held_to_reservation, intent, reserved_usd
from gpuplan.launcher.prepare.request import GuardRequest, LaunchRequest

SEEN: dict[tuple[str, str, str], dict[date, Decimal]] = {
    ("aws", "us-east-1", "p4d.24xlarge"): {
        date(2026, 11, 10 + day): Decimal(usd)
        for day, usd in enumerate(("8", "9", "8", "10", "8", "12", "9", "8"))
    }
}
"""Of later days over those before, nine in ten are below 1.4."""


def test_a_launch_on_spot_knows_how_the_price_moves_though_its_plan_is_on_demand(
    folder: Path,
) -> None:
    request = LaunchRequest(outputs=BUCKET, spot=True, has_controller=False)
    given = given_plan()
    steady, moving = prepared(given, request), prepared(given, request, spot_prices=SEEN)
    assert steady.moves is None and moving.moves is not None
    top = Decimal(str(moving.moves.high))
    assert top > Decimal("1.2")
    assert steady.cost.usd_worst is not None and moving.cost.usd_worst is not None
    assert moving.cost.usd_worst == pytest.approx(steady.cost.usd_worst * top, abs=Decimal("0.02"))
    assert moving.cost.usd_expected == steady.cost.usd_expected
    before, after = (intent(one, now=lambda: NOW) for one in (steady, moving))
    assert before.usd_high is not None and after.usd_high is not None
    assert after.usd_high > before.usd_high
    assert any("one in ten was followed" in note for note in moving.notes)
    # On demand no price moves, and elsewhere none was seen.
    assert prepared(given, LaunchRequest(outputs=BUCKET), spot_prices=SEEN).moves is None
    other = replace(request, regions=("us-west-2",))
    assert prepared(given, other, spot_prices=SEEN).moves is None


def test_a_guard_holds_its_cap_at_the_highest_price_that_was_seen(folder: Path) -> None:
    request = LaunchRequest(outputs=BUCKET, spot=True, has_controller=False)
    launch = prepared(given_plan(), request, spot_prices=SEEN)
    worst, top = launch.cost.usd_worst, launch.orders.price_top
    held = held_to_reservation(launch).orders
    assert worst is not None and launch.moves is not None and top == launch.moves.high
    assert held.max_cost_usd == float(worst)
    assert held.most_usd == pytest.approx(float(worst) / top)
    account = open_account(held, [], boot_s=NOW.timestamp(), now_s=NOW.timestamp())
    hours = launch.cost.hours_worst
    assert hours is not None
    for off_s, ends in ((-5, False), (5, True)):
        paid_s = hours * 3600 - held.tail_s + off_s
        verdict = over_limit(held, account, Reading(), paid_s=paid_s, now_s=0.0)
        assert (verdict is not None) is ends
        assert verdict is None or f"at prices up to {top:g} times these" in verdict.text
    # Limits count a cap of hours at that price too.
    hours_alone = replace(request, guard=GuardRequest(max_hours=3.0))
    rate = launch.places[0].usd_per_hour * Decimal(str(top))
    counted = reserved_usd(prepared(given_plan(), hours_alone, spot_prices=SEEN))
    assert counted == min(worst, (rate * Decimal("3.1")).quantize(Decimal("0.01"), ROUND_UP))


def test_machines_on_demand_after_spot_ones_keep_their_price(folder: Path) -> None:
    soon = NOW.astimezone() + timedelta(hours=12)
    request = LaunchRequest(outputs=BUCKET, spot=True, deadline=soon)
    held = prepared(given_plan(), request, spot_prices=SEEN).orders
    spot = held.at("aws", "us-east-1", "", is_spot=True)
    assert held.price_top == spot.price_top > 1
    assert held.at("aws", "us-east-1", "").price_top == 1
    assert Orders.from_json(held.to_json()) == held
