"""Machines of a start that failed, which SkyPilot tore down itself: they were paid for."""

from decimal import Decimal
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import make_record

from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import EngineError, NoCapacityError
from gpuplan.launcher.lifecycle.resume import reconcile_run
from gpuplan.launcher.lifecycle.transitions import ask, begin, wait_started
from gpuplan.launcher.store.accounting import closing_line, spent_usd
from gpuplan.launcher.store.launch_record import LaunchRecord, PricedPlace
from gpuplan.launcher.store.spending_limits import SpendingLimits

NODES = 4


def asked(context: LaunchContext, folder: Path, clock: object, infra: str) -> LaunchRecord:
    """Return a launch of four nodes for $36 an hour, whose machines are asked for."""
    places = (PricedPlace(infra=infra, usd_per_hour=Decimal(36) / NODES),)
    record = make_record(folder, clock, nodes=NODES, places=places)  # type: ignore[arg-type]
    return ask(context, begin(context, record, SpendingLimits(), spot=False))


@pytest.mark.parametrize("seen", ["at once", "a day later"])
def test_nodes_that_came_up_before_a_start_ended_without_capacity_are_counted_as_at_most(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, seen: str
) -> None:
    engine.no_capacity, engine.partial_s = True, 600.0
    record = asked(context, tmp_path, engine.clock, "gcp/us-central1")
    if seen == "at once":
        with pytest.raises(NoCapacityError):
            wait_started(context, record)
        ended = context.ledger.get(record.run)
    else:
        engine.finish_requests()
        engine.clock.pass_s(86_400)
        ended, _ = reconcile_run(context, record)
    assert (ended.outcome, engine.live()) == ("no-capacity", [])
    spent = spent_usd(ended, now=engine.clock())
    assert spent >= engine.billed_usd() > 4
    assert spent < 2 * engine.billed_usd(), "until it had failed, not until it was seen"
    assert "at most $" in closing_line(ended, now=engine.clock())


def test_a_cloud_that_gives_all_nodes_or_none_bills_nothing_without_capacity(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    engine.no_capacity = True
    with pytest.raises(NoCapacityError):
        wait_started(context, asked(context, tmp_path, engine.clock, "aws/us-east-1"))
    (ended,) = context.ledger.all()
    assert spent_usd(ended, now=engine.clock()) == 0


def test_machines_of_a_failed_start_that_skypilot_tore_down_are_counted(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    engine.breaks_while_starting = engine.tears_down_failed = True
    with pytest.raises(EngineError, match="setup"):
        wait_started(context, asked(context, tmp_path, engine.clock, "aws/us-east-1"))
    (ended,) = context.ledger.all()
    assert (ended.outcome, engine.live()) == ("failed", [])
    assert spent_usd(ended, now=engine.clock()) >= engine.billed_usd() > 2
