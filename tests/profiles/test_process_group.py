"""A process that leads a group ends, whatever the system says about groups."""

import errno
import os
import subprocess
import sys

import pytest

from gpuplan.profiles.process_group import end_group


def waiting() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def test_it_ends_once_and_a_second_time_does_nothing() -> None:
    with waiting() as process:
        end_group(process)
        assert process.wait(60) != 0
        end_group(process)


def test_it_ends_where_a_group_takes_no_signal(require, monkeypatch: pytest.MonkeyPatch) -> None:
    require("posix", "groups of processes")

    def refused(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "killpg", refused)
    with waiting() as process:
        end_group(process)
        assert process.wait(60) != 0
