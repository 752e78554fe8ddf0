"""The commit of a run is that of the repository its model file lies in."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuplan.launcher.commit import commit_of


def _git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_it_is_named_with_its_changes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    model = tmp_path / "own" / "model.py"
    model.parent.mkdir()
    model.write_text("x = 1\n")
    assert commit_of(model) is None
    _git(tmp_path, "init", "-q")
    assert commit_of(model) is None, "there is no commit yet"
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    head = _git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "results.txt").write_text("of a run")
    assert commit_of(model) == head
    model.write_text("x = 2\n")
    assert commit_of(model) == f"{head}+changes"


def test_a_repository_runs_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    _git(tmp_path, "init", "-q")
    (tmp_path / "model.py").write_text("x = 1\n")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    mark = tmp_path / "mark"
    script = tmp_path / "monitor"
    script.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    script.chmod(0o755)
    _git(tmp_path, "config", "core.fsmonitor", str(script))
    commit_of(tmp_path / "model.py")
    assert not mark.exists()


def test_a_file_that_is_nowhere_has_none(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "gone" / "model.py") is None
