"""A run that diverges goes back to its newest checkpoint, and leaves out what made it diverge."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, losses, make_job, plan_of, run

from gpuplan.launcher.runner.checkpoint.folder import RUN_FILE
from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.training.not_finite import Rewinds
from gpuplan.launcher.runner.training_options import REWIND, TrainingOptions

MODEL = REPOSITORY / "tests" / "support" / "models" / "bad_samples_model.py"


def train(folder: Path, *, steps: int = 10, processes: int = 1, **params: Any) -> Any:
    job = make_job(
        folder,
        MODEL,
        plan=plan_of({"data": processes}, micro_batch=2 // processes),
        params=params,
        steps=steps,
        workers=0,
        checkpoint=CheckpointPolicy(every_steps=2, keep=10),
        training=TrainingOptions(on_nan=REWIND),
    )
    return run(job, processes)


def samples_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return which samples the steps of a run take that never diverges, two each."""
    read = tmp_path / "undisturbed-read"
    monkeypatch.setenv("SAMPLES_READ", str(read))
    assert train(tmp_path / "undisturbed", steps=16).returncode == 0
    taken = [int(line) for line in read.read_text().split()]
    return [taken[place : place + 2] for place in range(0, len(taken), 2)]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_bad_sample_is_left_out_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    steps = samples_of_steps(tmp_path, monkeypatch)
    monkeypatch.setenv("SAMPLES_READ", str(tmp_path / "read"))
    done = train(tmp_path / "run", processes=processes, bad=[steps[6][1]])

    assert done.returncode == 0, done.stderr[-2000:]
    assert "Going back to step-00000006, and on with the samples behind" in done.stderr
    found = losses(tmp_path / "run")
    assert len(found) == 10 and all(map(math.isfinite, found))
    newest = json.loads((tmp_path / "run/checkpoints/step-00000010" / RUN_FILE).read_text())
    # The loss of step 7 is known when step 8 has run.
    assert (newest["rewinds"], newest["left_out_steps"]) == (1, 2)
    if processes == 1:
        read = [int(line) for line in (tmp_path / "read").read_text().split()]
        assert read[-8:] == sum(steps[8:12], []), "it went on behind the samples that it left out"


@pytest.mark.slow
def test_what_diverges_a_third_time_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = samples_of_steps(tmp_path, monkeypatch)
    monkeypatch.setenv("SAMPLES_READ", str(tmp_path / "read"))
    done = train(tmp_path / "run", bad=sum(steps[6:], []))

    assert done.returncode == 1
    assert done.stderr.count("Going back to step-00000006") == 2
    assert "The loss of step 7 is nan" in done.stderr


@pytest.mark.slow
def test_without_a_checkpoint_there_is_nothing_to_go_back_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLES_READ", str(tmp_path / "read"))
    done = train(tmp_path / "run", always=True)

    assert done.returncode == 1 and "there is no checkpoint from before it" in done.stderr


def test_what_was_left_out_is_kept_in_checkpoints() -> None:
    rewinds = Rewinds.of({})
    rewinds.go_back(begun=8, to=6)
    assert Rewinds.of(rewinds.facts()) == rewinds == Rewinds(1, 2)
    rewinds.go_back(begun=9, to=6)
    assert rewinds.left_out_steps == 5 and not rewinds.may_go_back
