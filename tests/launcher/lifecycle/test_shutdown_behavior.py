"""EC2's shutdown behaviour is set while machines start, or the user is told that it is not."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fake_engine import Clock, FakeEngine
from launch_records import make_context, make_record

from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.lifecycle.resume import reconcile_run
from gpuplan.launcher.lifecycle.shutdown_behavior import TerminateOnPowerOff
from gpuplan.launcher.lifecycle.transitions import ask, begin
from gpuplan.launcher.store.launch_record import LaunchRecord, PricedPlace
from gpuplan.launcher.store.spending_limits import SpendingLimits

PLACES = ("aws/us-east-1", "aws/us-west-2/us-west-2a", "gcp/us-central1")


class Cloud:
    """A cloud that has so many machines of a run, or refuses."""

    def __init__(self, machines: int, *, error: EngineError | None = None) -> None:
        self.machines, self.error = machines, error
        self.asked: list[tuple[str, Sequence[str]]] = []
        self.was_asked = Event()

    def __call__(self, run: str, regions: Sequence[str]) -> Sequence[str]:
        self.asked.append((run, regions))
        self.was_asked.set()
        if self.error is not None:
            raise self.error
        return [f"i-{index}" for index in range(self.machines)]


@pytest.fixture
def said() -> list[str]:
    """Return what the user is told."""
    return []


def launch(folder: Path, **changes: Any) -> LaunchRecord:
    places = tuple(PricedPlace(infra=infra, usd_per_hour=Decimal(36)) for infra in PLACES)
    return make_record(folder, Clock(), **changes).model_copy(update={"places": places})


def test_it_is_set_while_machines_start(tmp_path: Path, said: list[str]) -> None:
    cloud, record = Cloud(1), launch(tmp_path)
    with TerminateOnPowerOff(record, cloud, said.append, poll_s=0.01):
        assert cloud.was_asked.wait(10)
    assert cloud.asked == [(record.run, ("us-east-1", "us-west-2"))]
    assert said == []


def test_machines_that_are_up_at_once_are_set_at_the_end(tmp_path: Path, said: list[str]) -> None:
    cloud = Cloud(1)
    with TerminateOnPowerOff(launch(tmp_path), cloud, said.append):
        pass
    assert len(cloud.asked) == 1 and said == []


def test_what_could_not_be_set_is_said(tmp_path: Path, said: list[str]) -> None:
    record = launch(tmp_path)
    refusing = Cloud(0, error=EngineError("AWS refused in us-east-1: no"))
    with TerminateOnPowerOff(record, refusing, said.append, poll_s=0.01):
        assert refusing.was_asked.wait(10)
    with TerminateOnPowerOff(record.model_copy(update={"nodes": 2}), Cloud(1), said.append):
        pass
    refused, fewer = said
    assert "disks stay billed" in refused and "AWS refused in us-east-1: no" in refused
    assert "fewer than 2 machines" in fewer


def test_where_disks_hold_results_or_machines_change_nothing_is_set(
    tmp_path: Path, said: list[str]
) -> None:
    cloud = Cloud(1)
    kept = launch(tmp_path)
    changes: tuple[dict[str, Any], ...] = (
        {"fetch": "results"},
        {"managed": True},
        {"places": kept.places[2:]},
    )
    for change in changes:
        with TerminateOnPowerOff(kept.model_copy(update=change), cloud, said.append):
            pass
    assert cloud.asked == [] and said == []


def test_a_start_that_fails_is_not_asked_about(tmp_path: Path, said: list[str]) -> None:
    cloud = Cloud(0)
    watching = TerminateOnPowerOff(launch(tmp_path), cloud, said.append)
    with pytest.raises(EngineError, match="no quota"), watching:
        raise EngineError("no quota")
    assert cloud.asked == [] and said == []


def test_machines_that_no_command_has_seen_are_set_by_the_next_one(tmp_path: Path) -> None:
    engine, cloud, said = FakeEngine(Clock()), Cloud(1), []
    context = make_context(
        tmp_path,
        engine,
        while_starting=lambda record: TerminateOnPowerOff(record, cloud, said.append),
    )
    record = ask(context, begin(context, launch(tmp_path), SpendingLimits(), spot=False))
    engine.finish_requests()
    record, finding = reconcile_run(context, record)
    assert finding == "training" and len(cloud.asked) == 1
    reconcile_run(context, record)
    assert len(cloud.asked) == 1 and said == []
