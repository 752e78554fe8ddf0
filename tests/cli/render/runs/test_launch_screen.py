"""What the screen before renting says of what is lost, or goes on, without a command here."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_offer, make_plan, make_run
from launchable import MODEL, given_plan, prepared
from launches import BUCKET

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.cli.main import run
from gpuplan.cli.render.runs.launch import render_launch
from gpuplan.cli.render.text.columns import to_text
from gpuplan.launcher.prepare.prepared import Prepared
from gpuplan.launcher.prepare.request import GuardRequest, LaunchRequest
from gpuplan.launcher.store.sourced_plan import SourcedPlan


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
    assert launch.idle_minutes == said
    assert f"deleted with them {said} minutes after the job unless a command" in screen(launch)
    assert "deleted with them" not in screen(prepared(given_plan()))


def verda() -> SourcedPlan:
    """Return a plan on a cloud on which SkyPilot ends no machine by itself."""
    offer = make_offer(
        provider="verda",
        region="FIN-01",
        instance_type="8H100.80S.176V",
        accelerator="H100-80GB-SXM",
        usd_per_hour=19.2,
    )
    return given_plan(make_plan(offer=offer, run=make_run()))


def test_it_says_where_nothing_ends_machines_without_a_command(folder: Path) -> None:
    request = LaunchRequest(outputs=BUCKET, guard=GuardRequest(max_cost_usd=Decimal(300)))
    launch = prepared(verda(), request)
    said = screen(launch)
    assert "later if no command follows" not in said
    assert "NOTHING does: SkyPilot has no autodown on verda, and $19.20 an hour go on" in said
    assert "unless a command runs here, machines of verda do not end themselves" in said
    answer = launch.answer()
    assert answer.idle_minutes is None
    assert any("once the job has ended or was stopped" in note for note in answer.notes)
    assert prepared(given_plan()).answer().idle_minutes == 5


def test_an_autodown_that_would_end_nothing_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="--autodown 10 would end nothing"):
        prepared(verda(), LaunchRequest(outputs=BUCKET, autodown_minutes=10))


@pytest.mark.parametrize("words", [[], ["--dryrun"]])
def test_detaching_where_nothing_ends_machines_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], capsys
) -> None:
    given = verda()
    launch = prepared(given)
    monkeypatch.setattr(api, "launch", lambda *_given, **_named: launch)
    line = ["launch", given.plan.id, "--outputs", "s3://results/team", "--no-check-capacity", "-y"]
    assert run([*line, "--detach", *words]) == 2
    assert "with --detach they would cost $19.20 an hour without end" in capsys.readouterr().err
