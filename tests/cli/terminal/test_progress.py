"""What standard error shows while a command works: a count and the time left, or nothing."""

import io
import re
import sys

import pytest

from gpuplan.cli.terminal.progress import counted_progress, progress


class Terminal(io.StringIO):
    """Standard error of a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def stderr_is_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal; not a fixture, as pytest captures anew after those."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_work_of_less_than_two_seconds_shows_one_line_and_clears_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = stderr_is_terminal(monkeypatch)
    clock = Clock()
    with counted_progress("Comparing machines …", quiet=False, clock=clock) as tell:
        clock.now_s = 1.9
        tell("comparing kinds of machine", 3, 146)
    assert terminal.getvalue() == "Comparing machines …\r\033[K"


def test_longer_work_shows_the_stage_the_count_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = stderr_is_terminal(monkeypatch)
    clock = Clock()
    with counted_progress("Comparing machines …", quiet=False, clock=clock) as tell:
        clock.now_s = 2.1
        tell("comparing kinds of machine", 40, 146)
        tell("making tables of layouts that split the model", None, None)
        tell("comparing kinds of machine", 41, 146)
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", terminal.getvalue())
    assert "Comparing kinds of machine" in shown
    assert "41 of 146" in shown
    assert re.search(r"-:--:--|\d:\d\d:\d\d", shown)


@pytest.mark.parametrize("quiet", [True, False])
def test_nothing_is_shown_when_quiet_or_where_there_is_no_terminal(
    quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if quiet else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    clock = Clock()
    with counted_progress("Comparing machines …", quiet=quiet, clock=clock) as tell:
        clock.now_s = 9.0
        tell("comparing kinds of machine", 1, 2)
    assert stream.getvalue() == ""


def test_an_error_leaves_no_line_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr_is_terminal(monkeypatch)
    with pytest.raises(ValueError), counted_progress("Working …", quiet=False):
        raise ValueError
    assert terminal.getvalue().endswith("\r\033[K")


def test_what_is_said_meanwhile_stays_above_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr_is_terminal(monkeypatch)
    with progress("Tracing …", quiet=False) as say:
        say("it takes long")
    assert terminal.getvalue() == "Tracing …\r\033[Kit takes long\nTracing …\r\033[K"


def test_it_is_said_where_standard_error_is_no_terminal_but_not_when_quiet(capsys) -> None:
    for quiet in (False, True):
        with progress("Tracing …", quiet=quiet) as say:
            say("it takes long")
        assert capsys.readouterr().err == ("" if quiet else "it takes long\n")
