"""`gpuplan resume` counts machines at the price of how they are bought now, and asks first."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_engine import FakeEngine

from gpuplan.cli.commands import resume
from gpuplan.cli.main import run
from gpuplan.launcher.guard.orders import Orders
from gpuplan.launcher.lifecycle.engine import NoCapacityError
from gpuplan.launcher.skypilot import prices
from gpuplan.launcher.skypilot.placement import Place
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.launcher.store.launch_sums import Wanted
from gpuplan.launcher.store.launches import Ledger, default_ledger
from gpuplan.planner.plan.plan import Plan

SPOT, ON_DEMAND = 6.53, 21.96
WORDS = ("--outputs", "s3://results/team", "-y", "--detach", "-q")


def ended(engine: FakeEngine, plan: Plan, *words: str) -> LaunchRecord:
    """Return a launch that had machines for an hour."""
    assert run(["launch", plan.id, *WORDS, *words]) == 0
    engine.clock.pass_s(3600)
    (record,) = ledger(engine).newest(Wanted(), None)
    assert run(["down", record.run, "-q"]) == 0
    return kept(engine, record)


def ledger(engine: FakeEngine) -> Ledger:
    return default_ledger(engine.clock)


def kept(engine: FakeEngine, record: LaunchRecord) -> LaunchRecord:
    return ledger(engine).get(record.run)


def orders(record: LaunchRecord) -> Orders:
    return Orders.from_json((Path(record.folder) / "job" / "guard.json").read_text())


def test_machines_bought_on_demand_are_not_held_at_the_price_of_spot_machines(
    plan: Plan, engine: FakeEngine, capsys
) -> None:
    before = ended(engine, plan, "--spot", "--max-cost", "300")
    spot = float(before.places[0].usd_per_hour)
    assert before.places[0].spot and orders(before).usd_per_hour > spot  # With the controller.
    assert run(["resume", before.run, "--on-demand", "-y", "--detach"]) == 0
    said = capsys.readouterr().err
    assert f"{before.run} goes on on demand: aws/us-east-1 $21.96/h." in said
    assert "its guard ends it before $300.00" in said
    again, held = kept(engine, before), orders(before)
    assert [(one.usd_per_hour, one.spot) for one in again.places] == [(Decimal("21.96"), False)]
    assert held.at("AWS", "us-east-1", "us-east-1a").usd_per_hour == ON_DEMAND
    assert (held.after_usd, held.waiting_usd_per_hour, held.price_top) == (0.0, 0.0, 1.0)
    assert held.max_cost_usd == 300.0 and not held.notices
    first, then = orders_projection(before), held.projection
    assert then is not None and then.high_usd is not None
    assert then.high_usd > first * 2
    assert before.reserved_usd is not None and again.reserved_usd is not None
    dearest = orders_top(before, spot)
    assert float(again.reserved_usd / before.reserved_usd) == pytest.approx(
        ON_DEMAND / dearest, abs=0.01
    )


def orders_projection(record: LaunchRecord) -> float:
    """Return the top of what a launch was expected to cost on spot machines."""
    assert record.usd_high is not None
    return float(record.usd_high)


def orders_top(record: LaunchRecord, spot: float) -> float:
    """Return the price by the hour at which the worst case of a spot launch was counted."""
    return spot + float(record.controller_usd_per_hour or 0)


def test_the_limits_count_the_price_of_today(plan: Plan, engine: FakeEngine, capsys) -> None:
    before = ended(engine, plan, "--spot")
    assert before.reserved_usd is not None
    limit = str(before.reserved_usd + 1)
    task = Path(before.folder) / "task.yaml"
    spot_task = task.read_text()
    assert yaml.safe_load(spot_task)["resources"]["use_spot"] is True
    words = ["resume", before.run, "-y", "--detach", "--month-limit", limit]
    assert run([*words, "--on-demand"]) == 4
    assert "At worst this costs" in capsys.readouterr().err
    assert task.read_text() == spot_task and len(kept(engine, before).attempts) == 1
    assert run([*words, "--spot"]) == 0


def test_a_launch_on_demand_goes_on_at_the_market_price_of_spot_machines(
    plan: Plan, engine: FakeEngine
) -> None:
    before = ended(engine, plan)
    assert run(["resume", before.run, "--spot", "-y", "--detach"]) == 0
    again = kept(engine, before)
    assert again.places[0].spot and again.places[0].usd_per_hour < Decimal("21.96")
    assert orders(before).usd_per_hour == float(again.places[0].usd_per_hour)
    assert again.reserved_usd == before.reserved_usd, "what is lost to preemptions is not known"


def test_a_price_that_rose_since_is_counted(plan: Plan, engine: FakeEngine) -> None:
    before = ended(engine, plan)
    cheap = before.places[0].model_copy(update={"usd_per_hour": Decimal("10.98")})
    ledger(engine).update(
        before.run, lambda one: one.model_copy(update={"places": (cheap,)}), what="cheap"
    )
    assert run(["resume", before.run, "-y", "--detach"]) == 0
    again = kept(engine, before)
    assert again.places[0].usd_per_hour == Decimal("21.96")
    assert before.reserved_usd is not None and again.reserved_usd == before.reserved_usd * 2


def test_a_price_that_is_not_known_rents_nothing(plan: Plan, engine: FakeEngine, capsys) -> None:
    before = ended(engine, plan, "--spot")
    ledger(engine).update(
        before.run, lambda one: one.model_copy(update={"plan": "0000000000"}), what="forgotten"
    )
    assert run(["resume", before.run, "--on-demand", "-y"]) == 5
    said = capsys.readouterr().err
    assert "cost on demand in aws/us-east-1 is not known" in said and "--spot" in said
    assert len(kept(engine, before).attempts) == 1
    assert run(["resume", before.run, "-y", "--detach"]) == 0, "as before it is known"


def test_it_asks_before_it_rents(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    before = ended(engine, plan)
    assert run(["resume", before.run]) == 2
    assert "give -y to rent without asking" in capsys.readouterr().err
    monkeypatch.setattr(resume, "is_terminal", lambda _stream: True)
    asked: list[str] = []

    def no(text: str, **_how: object) -> None:
        asked.append(text)
        raise resume.click.Abort

    monkeypatch.setattr(resume.click, "confirm", no)
    assert run(["resume", before.run, "-q"]) != 0
    assert asked == ["Rent these machines?"]
    assert "at worst in all" in capsys.readouterr().err
    assert len(kept(engine, before).attempts) == 1


@pytest.mark.parametrize("bought", [(), ("--spot",)])
def test_skypilots_price_is_counted_where_it_is_higher(
    plan: Plan,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
    bought: tuple[str, ...],
) -> None:
    before = ended(engine, plan, *bought)
    asked: list[dict[str, Any]] = []

    def theirs(task: dict[str, Any]) -> list[Decimal]:
        asked.append(task["resources"])
        return [Decimal(40)]

    monkeypatch.setattr(prices, "skypilot_prices", theirs)
    assert run(["resume", before.run, "-y", "--detach"]) == 0
    said = capsys.readouterr().err
    assert "aws/us-east-1: the plan says" in said
    assert "SkyPilot's own table $40.00/h" in said and "aws/us-east-1 $40.00/h." in said
    assert asked[0]["ordered"] == [{"infra": "aws/us-east-1", "use_spot": bool(bought)}]
    again = kept(engine, before)
    assert again.places[0].usd_per_hour == 40
    assert orders(before).at("AWS", "us-east-1", "us-east-1a").usd_per_hour >= 40
    assert before.reserved_usd is not None and again.reserved_usd is not None
    assert again.reserved_usd > before.reserved_usd


def test_the_limit_by_the_hour_holds_for_a_resume(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    before = ended(engine, plan, "--max-hourly-cost", "30")
    assert before.max_hourly_cost_usd == 30
    monkeypatch.setattr(prices, "skypilot_prices", lambda _task: [Decimal(40)])
    assert run(["resume", before.run, "-y", "--detach"]) == 4
    assert (
        "$40.00 an hour in aws/us-east-1, more than --max-hourly-cost $30.00"
        in capsys.readouterr().err
    )
    assert len(kept(engine, before).attempts) == 1
    assert run(["resume", before.run, "-y", "--detach", "--max-hourly-cost", "50"]) == 0
    assert kept(engine, before).max_hourly_cost_usd == 50


def test_what_the_account_cannot_start_is_not_asked_for(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    before = ended(engine, plan)
    asked: list[list[str | None]] = []

    def no_quota(_plan: Plan, places: Sequence[Place], *, spot: bool) -> None:
        asked.append([one.region for one in places])
        assert not spot
        raise NoCapacityError("0 of 0 vCPUs used, needs 96.", fix="ask for more quota.")

    monkeypatch.setattr("gpuplan.api.resuming.refuse_nowhere", no_quota)
    assert run(["resume", before.run, "-y", "--detach"]) == 3
    assert "needs 96" in capsys.readouterr().err
    assert (asked, len(kept(engine, before).attempts)) == ([["us-east-1"]], 1)
    assert run(["resume", before.run, "-y", "--detach", "--no-check-capacity"]) == 0
