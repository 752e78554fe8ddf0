"""A launch that runs on an engine in memory, for the commands that find it again."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from fake_engine import Clock, FakeEngine
from launch_records import launched_with_orders, make_record

from gpuplan import api
from gpuplan.launcher.lifecycle.reconcile.reconcile import Listing
from gpuplan.launcher.lifecycle.transitions import LaunchContext
from gpuplan.launcher.skypilot import engine as sky_engine
from gpuplan.launcher.store.launch_record import LaunchRecord


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine(Clock(datetime.now(UTC)))

    class EngineTime:
        now = staticmethod(lambda _zone: fake.clock())

    monkeypatch.setattr(api.launches, "datetime", EngineTime)
    monkeypatch.setattr(sky_engine, "SkyEngine", lambda: fake)
    monkeypatch.setattr(
        "gpuplan.launcher.lifecycle.reconcile.cloud_instances.labelled_instances",
        lambda _regions: Listing(),
    )
    monkeypatch.setattr(
        "gpuplan.launcher.lifecycle.reconcile.cloud_instances.terminate_on_power_off",
        lambda _run, _regions: ["i-1"],
    )
    return fake


@pytest.fixture
def context(engine: FakeEngine) -> LaunchContext:
    return api.launches.context(engine=engine)


@pytest.fixture
def record(tmp_path: Path, engine: FakeEngine, context: LaunchContext) -> LaunchRecord:
    """Return a launch whose job runs, with orders of its guard in its folder."""
    return launched_with_orders(context, make_record(tmp_path, engine.clock), spot=False)
