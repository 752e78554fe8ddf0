"""What a launch trains on: synthetic batches are never paid for unasked."""

import json
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launchable import plan_without_data

from gpuplan.cli.main import run
from gpuplan.planner.plan.plan import Plan

OUTPUTS = ("--outputs", "s3://results/team")


@pytest.mark.parametrize("how", [("--dryrun",), ("-y",)])
def test_synthetic_batches_are_not_paid_for_unasked(
    plan: Plan, engine: FakeEngine, how: tuple[str, ...], capsys
) -> None:
    bare = plan_without_data()
    assert run(["launch", bare, *OUTPUTS, *how]) == 2
    said = capsys.readouterr()
    assert "would train on synthetic batches" in said.err
    assert "bare.py has no build_dataset()" in said.err
    assert "--synthetic" in said.err.partition("To fix: ")[2]
    assert said.out == ""
    assert not Path("gpuplan-launches").exists()


def test_synthetic_batches_that_are_asked_for_are_kept_in_the_job(
    plan: Plan, engine: FakeEngine, capsys
) -> None:
    bare = plan_without_data()
    assert run(["launch", bare, *OUTPUTS, "--synthetic", "-y"]) == 0
    assert "data: SYNTHETIC batches: bare.py has no build_dataset()" in capsys.readouterr().err
    (path,) = Path("gpuplan-launches").glob("*/job/job.json")  # which `resume` sends again
    job = json.loads(path.read_text())
    assert (job["synthetic"], job["needs_dataset"]) == (True, False)


def test_a_file_with_a_data_set_must_give_it_on_the_node(
    plan: Plan, engine: FakeEngine, capsys
) -> None:
    assert run(["launch", plan.id, *OUTPUTS, "-y", "-q"]) == 0
    (path,) = Path("gpuplan-launches").glob("*/job/job.json")
    job = json.loads(path.read_text())
    assert (job["synthetic"], job["needs_dataset"]) == (False, True)


def test_a_few_first_steps_may_be_synthetic(plan: Plan, capsys) -> None:
    bare = plan_without_data()
    assert run(["launch", bare, *OUTPUTS, "--smoke", "--dryrun"]) == 0
    assert "data: SYNTHETIC batches" in capsys.readouterr().err


def test_a_lightning_loader_is_launched_and_its_hooks_are_not(plan: Plan, capsys) -> None:
    loader = "class Net(LightningModule):\n    def train_dataloader(self): ...\n"
    lit = plan_without_data(loader)
    assert run(["launch", lit, *OUTPUTS, "--dryrun"]) == 0
    assert "data: train_dataloader() of bare.py, in gpuplan's own loop" in capsys.readouterr().err
    trained = plan_without_data(loader + "if __name__ == '__main__':\n    Trainer(precision=16)\n")
    assert run(["launch", trained, *OUTPUTS, "--dryrun"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "gives its own Trainer precision=16, which this loop does not read" in said
    hooked = plan_without_data(loader + "    def on_fit_start(self): ...\n")
    assert run(["launch", hooked, *OUTPUTS, "--dryrun"]) == 2
    said = capsys.readouterr().err
    assert "on_fit_start()" in said and "--framework lightning" in said
