"""What goes to standard error beside the answer."""

import warnings

import pytest

from gpuplan.cli.terminal.notices import warnings_to_stderr


def test_warnings_are_shown_once_and_not_those_of_the_interpreter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An interrupt while a module is read leaves its file open: nobody can do anything about it."""
    with warnings_to_stderr(quiet=False):
        for _ in range(2):
            warnings.warn("the cache is full", UserWarning, stacklevel=1)
        warnings.warn("unclosed file <_io.BufferedReader>", ResourceWarning, stacklevel=1)
    assert capsys.readouterr().err == "Warning: the cache is full\n"


def test_quiet_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_to_stderr(quiet=True):
        warnings.warn("the cache is full", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == ""
