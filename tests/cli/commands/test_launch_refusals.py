"""What `gpuplan launch` refuses, and the one line that it gives to paste."""

import re
import sys
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launchable import plan_without_data

from gpuplan.cli.main import run
from gpuplan.launcher.lifecycle.engine import NoCapacityError, NoEngineError
from gpuplan.planner.plan.plan import Plan

CANARY = "hf_canaryCanaryCanary0123456789"
OUTPUTS = ("--outputs", "s3://results/team")


def test_without_skypilot_it_says_how_to_install_it(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setitem(sys.modules, "sky", None)
    assert run(["launch", plan.id, *OUTPUTS, "-y"]) == 2
    assert 'pip install "gpuplan[sky]"' in capsys.readouterr().err
    assert not Path("gpuplan-launches").exists()
    assert run(["history"]) == 0
    assert "No launch was made yet" in capsys.readouterr().out


def test_all_that_is_missing_is_said_at_once_with_one_line_that_can_be_pasted(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def not_here() -> None:
        raise NoEngineError("SkyPilot is not installed here.", fix="install it.")

    monkeypatch.setattr(engine, "ready", not_here)
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    kept = plan_without_data("import click\ndef build_model(): ...\ndef build_dataset(): ...\n")
    assert run(["launch", kept, "--secret", "HF_TOKEN", "--max-cost", "400"]) == 2
    said = capsys.readouterr().err
    assert "Error: 5 things are missing before this can be launched." in said
    *_, head, line = said.splitlines()
    assert head == "All of it, in one command:"
    first, rest = line.strip().split(" && ", 1)
    assert first == 'pip install "gpuplan[sky]" "skypilot[aws]"'
    assert rest.startswith("read -rs HF_TOKEN && export HF_TOKEN && printf ")
    assert "click==" in rest
    typed = f"gpuplan launch {kept} --secret HF_TOKEN --max-cost 400 --fetch results -y"
    assert rest.endswith(f"/requirements.txt && {typed}")
    assert engine.tasks == []


def test_what_was_told_only_after_all_else_is_in_the_list_too(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A limit, quota that is too small, keys and the answer to the question."""

    def no_quota(*_launch: object, **_how: object) -> None:
        raise NoCapacityError("Your account cannot start it.", fix="ask for more quota.")

    monkeypatch.setattr("gpuplan.api.account.startable.refuse_no_place", no_quota)
    assert run(["launch", plan.id, "--max-cost", "1"]) == 2
    said = capsys.readouterr().err
    assert "Error: 5 things are missing before this can be launched." in said
    assert "2. This is expected to cost $" in said
    assert "3. No keys of aws were found on this machine." in said
    assert "4. Your account cannot start it." in said
    assert "5. Renting machines needs your confirmation" in said
    assert "All but 2, 4, which come first, in one command:" in said
    typed = f"gpuplan launch {plan.id} --max-cost 1 --fetch results -y"
    assert said.splitlines()[-1] == f"  aws configure && {typed}"
    most = re.search(r"--max-cost (\d+), its worst case", said)
    assert most is not None
    words = ["launch", plan.id, "--max-cost", most[1], "--fetch", "results", "-y"]
    assert run([*words, "--no-check-capacity"]) == 0
    assert len(engine.tasks) == 1


def test_quota_alone_is_told_with_the_answer_that_is_missing(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def no_quota(*_launch: object, **_how: object) -> None:
        raise NoCapacityError("Your account cannot start it.", fix="ask for more quota.")

    monkeypatch.setattr("gpuplan.api.account.startable._refuse_all_no", no_quota)
    assert run(["launch", plan.id, *OUTPUTS]) == 3
    said = capsys.readouterr().err
    assert "Error: 2 things are missing" in said
    assert said.splitlines()[-1] == f"  gpuplan launch {plan.id} {' '.join(OUTPUTS)} -y"


def test_a_dry_run_needs_neither_skypilot_nor_secrets(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(engine, "ready", lambda: pytest.fail("asked"))
    assert run(["launch", plan.id, "--secret", "HF_TOKEN", "--dryrun"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == (f"  gpuplan launch {plan.id} --secret HF_TOKEN --dryrun --fetch results")
    assert run(["launch", plan.id, "--secret", "HF_TOKEN", "--dryrun", "--fetch", "results"]) == 0


def test_a_key_is_in_no_line_that_can_be_pasted(plan: Plan, capsys) -> None:
    assert run(["launch", plan.id, "--command", f"train.py --token {CANARY}", "--dryrun"]) == 2
    assert CANARY not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 2, "would go with them"),
        ((*OUTPUTS, "--provider", "azure"), 3, "no priced plan on azure"),
        ((*OUTPUTS, "--max-cost", "50"), 4, "more than --max-cost $50.00"),
        ((*OUTPUTS, "--max-hours", "2"), 4, "more than --max-hours 2"),
        ((*OUTPUTS, "--max-hourly-cost", "20"), 4, "more than --max-hourly-cost $20.00"),
        (
            (*OUTPUTS, "--region", "us-east-1,eu-west-1", "--max-hourly-cost", "22"),
            4,
            "$23.72 an hour in aws/eu-west-1, more than --max-hourly-cost $22.00",
        ),
        (
            (*OUTPUTS, "--spot", "--deadline", "60d", "--max-hourly-cost", "20"),
            4,
            "$21.96 an hour in aws/us-east-1, more than --max-hourly-cost $20.00",
        ),
        ((*OUTPUTS, "--deadline", "2h"), 4, "--deadline is in 2.0"),
        ((*OUTPUTS, "--shared", "/mnt/runs"), 2, "--outputs"),
        ((*OUTPUTS, "--min-gpu-utilization", "130%"), 2, "is not a share"),
        ((*OUTPUTS, "--region", "mars-1"), 5, "Nobody states a price"),
        ((*OUTPUTS, "--framework", "jax"), 2, "for a script of your own"),
        ((*OUTPUTS, "--synthetic", "--command", "t.py"), 2, "own script reads its own data"),
        ((*OUTPUTS, "--param", "width=5"), 2, "without --model"),
        ((*OUTPUTS, "--model", "net.py", "--param", "width=5"), 2, "not with width=5"),
        ((*OUTPUTS, "--out-file", "x.yaml"), 2, "--out-file is for --dryrun"),
        ((*OUTPUTS, "--data", "s3://bucket"), 2, "where the bucket goes"),
        ((*OUTPUTS, "--workdir", "nowhere"), 2, "There is no folder nowhere"),
    ],
)
def test_what_is_refused_and_how(
    plan: Plan, options: tuple[str, ...], code: int, said: str, capsys
) -> None:
    dry = () if "--out-file" in options else ("--dryrun",)
    assert run(["launch", *options, *dry]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert "To fix: " in captured.err or "Error: Invalid value" in captured.err
    assert not Path("gpuplan-launches").exists()


def test_a_changed_model_is_stale(plan: Plan, capsys) -> None:
    Path("net.py").write_text("def build_model(): return 1\n")
    assert run(["launch", plan.id, *OUTPUTS, "--dryrun"]) == 2
    assert "has changed since" in capsys.readouterr().err


def test_a_plan_from_a_file_needs_its_model(plan: Plan, capsys) -> None:
    Path("plan.json").write_text(plan.model_dump_json())
    assert run(["launch", "plan.json", *OUTPUTS, "--dryrun"]) == 2
    assert "--model" in capsys.readouterr().err
    assert run(["launch", "plan.json", "--model", "net.py", *OUTPUTS, "--dryrun"]) == 0
