"""More processes than cores: asked about, refused without a terminal, taken with -y."""

import io

import click
import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.cli.main import run
from gpuplan.cli.options.crowded import confirm_crowd


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuplan.launcher.local.machine.core_count", lambda: 4)


@pytest.mark.parametrize(("nproc", "yes"), [(None, False), (4, False), (2, False), (9999, True)])
def test_what_the_machine_holds_or_the_user_wants_is_started(nproc: int | None, yes: bool) -> None:
    confirm_crowd(nproc, yes=yes)


def test_two_processes_rehearse_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuplan.launcher.local.machine.core_count", lambda: 1)
    confirm_crowd(2, yes=False)
    with pytest.raises(UsageError):
        confirm_crowd(3, yes=False)


@pytest.mark.parametrize("words", [["net.py"], ["--command", "train.py"]])
def test_a_crowd_is_refused_without_a_terminal_with_the_option_that_goes_on(
    words: list[str], capsys
) -> None:
    assert run(["run", *words, "--nproc", "9999"]) == 2
    said = capsys.readouterr().err
    assert "--nproc 9,999 starts 9,999 processes, and this machine has 4 cores." in said
    assert "To fix: give --nproc 4, or -y to start as many all the same." in said


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_crowd_is_asked_about_at_a_terminal(
    answer: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr("gpuplan.cli.options.crowded.is_terminal", lambda _stream: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))
    if answer == "n":
        with pytest.raises(click.Abort):
            confirm_crowd(5, yes=False)
    else:
        confirm_crowd(5, yes=False)
    assert "5 processes, and this machine has 4 cores. Start them?" in capsys.readouterr().err
