"""How a run hears that it is to end: signals that a launcher doubles, and a file."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuplan.launcher.runner.processes.stopping import SAME_S, STOP_VARIABLE, Stopping


class LaterSignalError(Exception):
    """What the handler that was there before does."""


@pytest.fixture
def earlier_handler(require) -> Iterator[None]:
    require("posix", "signals are raised")

    def handle(_number: int, _frame: object) -> None:
        raise LaterSignalError

    before = signal.signal(signal.SIGTERM, handle)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("earlier_handler")
def test_a_signal_that_was_passed_on_twice_is_one() -> None:
    now_s = [0.0]
    stopping = Stopping({}, lambda: now_s[0])
    with stopping.listening():
        assert not stopping.is_asked()
        signal.raise_signal(signal.SIGTERM)
        now_s[0] = SAME_S
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stopping.is_asked()


@pytest.mark.usefixtures("earlier_handler")
def test_a_later_signal_ends_it_at_once() -> None:
    now_s = [0.0]
    stopping = Stopping({}, lambda: now_s[0])
    with stopping.listening():
        signal.raise_signal(signal.SIGTERM)
        now_s[0] = SAME_S + 0.1
        with pytest.raises(LaterSignalError):
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.usefixtures("earlier_handler")
def test_handlers_are_put_back() -> None:
    with Stopping({}).listening():
        pass
    with pytest.raises(LaterSignalError):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.usefixtures("earlier_handler")
def test_a_run_that_fails_is_not_ended_before_it_says_why() -> None:
    with pytest.raises(ValueError, match="the batch"), Stopping({}).listening():
        raise ValueError("the batch is empty")
    signal.raise_signal(signal.SIGTERM)


def test_a_file_that_appears_asks_it_to_stop(tmp_path: Path) -> None:
    stopping = Stopping({STOP_VARIABLE: str(tmp_path / "stop")})
    assert not stopping.is_asked()
    (tmp_path / "stop").touch()
    assert stopping.is_asked()
    assert not Stopping({}).is_asked()


def test_the_guard_of_a_node_is_told_that_another_stopped_the_run(tmp_path: Path) -> None:
    file = tmp_path / "stop"
    stopping = Stopping({STOP_VARIABLE: str(file)})
    stopping.pass_on(steps_left=0)
    assert not file.exists(), "it has reached its last step"
    stopping.pass_on(steps_left=3)
    stopping.pass_on(steps_left=3)
    assert file.exists()
    Stopping({}).pass_on(steps_left=3)
    Stopping({STOP_VARIABLE: str(tmp_path / "gone" / "stop")}).pass_on(steps_left=3)
