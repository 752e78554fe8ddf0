"""What the screen before renting says of what is lost, or goes on costing, without a command here."""

from __future__ import annotations

from pathlib import Path

import pytest
from launchable import MODEL, given_plan, prepared

from gpuplan.cli.render.runs.launch import render_launch
from gpuplan.cli.render.text.columns import to_text
from gpuplan.launcher.prepare.prepared import Prepared
from gpuplan.launcher.prepare.request import LaunchRequest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path


def screen(launch: Prepared) -> str:
    return to_text(render_launch(launch), colour=False)


@pytest.mark.parametrize(("minutes", "said"), [(None, 60), (240, 240)])
def test_it_says_when_results_on_the_machine_are_deleted(
    folder: Path, minutes: int | None, said: int
) -> None:
    request = LaunchRequest(fetch=str(folder / "results"), autodown_minutes=minutes)
    launch = prepared(given_plan(), request)
    assert launch.task.idle_minutes == said
    assert f"deleted with them {said} minutes after the job unless a command" in screen(launch)
    assert "deleted with them" not in screen(prepared(given_plan()))
