"""Whether the command that launched a run lives, and what is not done to it while it does."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import RUN, launched, make_context, make_record

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import NoEngineError
from gpuplan.launcher.lifecycle.observing import launching_process
from gpuplan.launcher.lifecycle.observing.launching_process import is_alive
from gpuplan.launcher.lifecycle.observing.observe import Observed, classify
from gpuplan.launcher.lifecycle.resume import down
from gpuplan.launcher.lifecycle.transitions import begin
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.launcher.store.spending_limits import SpendingLimits
from gpuplan.launcher.uptime import Uptime, uptime


@pytest.fixture
def other() -> Iterator[int]:
    """Return the number of another process that lives."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def of_process(
    context: LaunchContext, record: LaunchRecord, pid: int, asked: Uptime | None = None
) -> LaunchRecord:
    """Return a launch as another process made it."""
    return context.ledger.update(
        record.run,
        lambda one: one.with_last(asked_uptime=asked or uptime()).model_copy(update={"pid": pid}),
        what="launched by another process",
    )


def test_a_launch_is_not_closed_while_its_command_runs(
    tmp_path: Path,
    context: LaunchContext,
    engine: FakeEngine,
    other: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = of_process(context, launched(context, make_record(tmp_path, engine.clock)), other)

    def unreachable(_name: str) -> None:
        raise NoEngineError("SkyPilot's server cannot be reached.")

    monkeypatch.setattr(engine, "requests", unreachable)
    with pytest.raises(UsageError, match=rf"still runs here \(process {other}\)") as refused:
        down(context, record, is_engine_gone=True)
    assert f"kill {other}" in str(refused.value.fix)
    assert context.ledger.get(RUN).is_open
    monkeypatch.setattr(launching_process.os, "kill", gone)
    assert down(context, record, is_engine_gone=True).outcome == "lost"


def gone(_pid: int, _number: int) -> None:
    raise ProcessLookupError


def test_a_process_that_began_after_the_launch_is_another(
    tmp_path: Path,
    context: LaunchContext,
    engine: FakeEngine,
    other: int,
    require: Callable[[str, str], None],
) -> None:
    require("linux", "it names every start of the machine")
    begun = begin(context, make_record(tmp_path, engine.clock), SpendingLimits(), spot=False)
    here = uptime()
    assert here is not None
    assert is_alive(of_process(context, begun, other, here))
    earlier = Uptime(boot=here.boot, s=here.s - 3600.0)
    assert not is_alive(of_process(context, begun, other, earlier))
    before_restart = Uptime(boot="another start", s=here.s + 3600.0)
    record = of_process(context, begun, other, before_restart)
    assert not is_alive(record)
    assert classify(record, Observed(is_launcher_alive=is_alive(record))) == "never-asked"


def test_a_process_of_another_machine_is_not_looked_for(
    tmp_path: Path, engine: FakeEngine, other: int
) -> None:
    context = make_context(tmp_path, engine)
    begun = begin(context, make_record(tmp_path, engine.clock), SpendingLimits(), spot=False)
    assert not is_alive(of_process(context, begun, other), host="elsewhere")
