"""The world of a launch: an engine that rents nothing, and the store."""

from pathlib import Path

import pytest
from fake_engine import Clock, FakeEngine
from launch_records import make_context

from gpuplan.launcher.lifecycle.context import LaunchContext


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(Clock())


@pytest.fixture
def context(tmp_path: Path, engine: FakeEngine) -> LaunchContext:
    return make_context(tmp_path, engine)
