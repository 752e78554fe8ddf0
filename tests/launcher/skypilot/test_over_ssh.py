"""Results and commands over SSH: what is brought, what is missing, and what another try may change.

`ssh` is a script that runs what it is told here, or ends as a lost connection does; rsync is real.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuplan.launcher.lifecycle.engine import EngineError, LostMachineError
from gpuplan.launcher.skypilot.over_ssh import bring, tell

SSH = """#!/bin/sh
echo "$@" >>"$SSH_LOG"
if [ -n "$SSH_SAYS" ]; then echo "$SSH_SAYS" >&2; exit "${SSH_CODE:-255}"; fi
while [ "$1" != gp-net ]; do shift; done
shift
cd "$NODE_HOME"
if [ -n "$SSH_CUT_BYTES" ]; then sh -c "$*" | "$PYTHON" -c "$CUT" "$SSH_CUT_BYTES"; exit 255; fi
exec sh -c "$*"
"""

CUT = """
import os, sys
left = int(sys.argv[1])
while left and (found := os.read(0, min(left, 65536))):
    left -= os.write(1, found)
"""


@pytest.fixture
def node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require: Callable[[str, str], None]
) -> Path:
    """Return the home of a node that `ssh gp-net` reaches."""
    require("rsync", "it brings the results")
    home, commands = tmp_path / "node", tmp_path / "bin"
    home.mkdir()
    commands.mkdir()
    (commands / "ssh").write_text(SSH)
    (commands / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv("NODE_HOME", str(home))
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("CUT", CUT)
    monkeypatch.setenv("SSH_LOG", str(tmp_path / "ssh.log"))
    return home


def test_results_are_brought_over_a_connection_that_ends_when_nobody_answers(
    node: Path, tmp_path: Path
) -> None:
    (node / "gpuplan-out").mkdir()
    (node / "gpuplan-out" / "metrics.jsonl").write_text("{}\n")
    assert bring("gp-net", "gpuplan-out", tmp_path / "results")
    assert (tmp_path / "results" / "metrics.jsonl").read_text() == "{}\n"
    assert "ServerAliveInterval=15" in (tmp_path / "ssh.log").read_text()


def test_what_was_brought_before_is_not_replaced_by_a_part_of_it(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.urandom(2**20)
    (node / "gpuplan-out").mkdir()
    (node / "gpuplan-out" / "weights").write_bytes(whole)
    (node / "gpuplan-out" / "new").write_bytes(whole)
    results = tmp_path / "results"
    results.mkdir()
    (results / "weights").write_bytes(b"as another command has brought it")
    monkeypatch.setenv("SSH_CUT_BYTES", "500000")
    for _ in range(2):
        with pytest.raises(LostMachineError):
            bring("gp-net", "gpuplan-out", results)
        assert not (results / "new").exists(), "half a file looks like a whole one"
        assert (results / "weights").read_bytes() == b"as another command has brought it"
    monkeypatch.delenv("SSH_CUT_BYTES")
    assert bring("gp-net", "gpuplan-out", results)
    assert [one.name for one in sorted(results.iterdir())] == ["new", "weights"]
    assert (results / "new").read_bytes() == (results / "weights").read_bytes() == whole


def test_a_job_without_results_is_told_from_one_whose_results_cannot_be_brought(
    node: Path, tmp_path: Path
) -> None:
    assert not bring("gp-net", "gpuplan-out", tmp_path / "results")
    (node / "gpuplan-out").write_text("a file")
    with pytest.raises(EngineError, match="could not be brought") as found:
        bring("gp-net", "gpuplan-out", tmp_path / "results")
    assert not isinstance(found.value, LostMachineError)


@pytest.mark.parametrize(
    ("said", "is_lost"),
    [
        ("ssh: connect to host 10.0.0.1 port 22: Connection timed out", True),
        ("Timeout, server 10.0.0.1 not responding.", True),
        ("ann@10.0.0.1: Permission denied (publickey).", False),
    ],
)
def test_a_lost_connection_is_told_from_one_that_never_will_be(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, is_lost: bool
) -> None:
    monkeypatch.setenv("SSH_SAYS", said)
    with pytest.raises(EngineError, match=said[:20]) as found:
        bring("gp-net", "gpuplan-out", tmp_path / "results")
    assert isinstance(found.value, LostMachineError) is is_lost
    with pytest.raises(EngineError, match="did not do as it was told") as found:
        tell("gp-net", "touch ~/gpuplan-stop")
    assert isinstance(found.value, LostMachineError) is is_lost


def test_a_command_is_run_on_the_node(node: Path) -> None:
    tell("gp-net", "touch stop")
    assert (node / "stop").exists()
    with pytest.raises(EngineError, match="no such thing") as found:
        tell("gp-net", "echo no such thing >&2; exit 3")
    assert not isinstance(found.value, LostMachineError)
