"""The folder of a run: whose it is, and the checkpoints that lie there already."""

import os
from pathlib import Path

import pytest
from run_folders import checkpoint

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.local import run_folder
from gpuplan.launcher.runner.job import CheckpointPolicy, Job


def test_a_finished_run_is_not_run_again(job: Job) -> None:
    checkpoint(job.checkpoints, 20)
    assert run_folder.already_done(job) is None
    checkpoint(job.checkpoints, 30)
    assert run_folder.already_done(job) == {"steps": 30}


def test_two_runs_do_not_share_a_folder(job: Job) -> None:
    folder = job.out_dir
    refused = pytest.raises(UsageError, match="Another run is writing")
    with run_folder.held(folder), refused, run_folder.held(folder):
        pass
    with run_folder.held(folder):
        pass


def test_the_folder_of_a_run_without_a_name_is_a_new_one(ask, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = (ask(out_dir=None).job.out_dir for _ in range(2))
    assert first == tmp_path / "gpuplan-runs" / "net-20261121-103000"
    assert second == tmp_path / "gpuplan-runs" / "net-20261121-103000-2"


def test_a_run_that_begins_anew_keeps_the_checkpoints_before_it_apart(ask) -> None:
    job = ask(steps=9, checkpoint=CheckpointPolicy(resume="never")).job
    old = checkpoint(job.checkpoints, 100)
    notes: list[str] = []
    with run_folder.apart_from_earlier(job, notes.append):
        assert run_folder.checkpoints(job.checkpoints) == []
        new = checkpoint(job.checkpoints, 9)
    assert run_folder.checkpoints(job.checkpoints) == [new]
    assert (job.checkpoints / f"before-{job.run_id}" / old.name).is_dir()
    assert len(notes) == 1


def test_a_run_that_fails_before_its_first_checkpoint_leaves_the_old_ones(ask) -> None:
    job = ask(steps=9, checkpoint=CheckpointPolicy(resume="never")).job
    old = checkpoint(job.checkpoints, 100)
    with run_folder.apart_from_earlier(job, print):
        pass
    assert run_folder.checkpoints(job.checkpoints) == [old]
    assert os.listdir(job.checkpoints) == [old.name]


def test_a_checkpoint_to_resume_from_may_be_named_alone(ask, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "out" / "checkpoints", 20)
    policy = CheckpointPolicy(resume=path.name)
    assert ask(checkpoint=policy).job.checkpoint.resume == str(path)
    with pytest.raises(UsageError, match="step-00000099 is not a whole checkpoint"):
        ask(checkpoint=CheckpointPolicy(resume="step-00000099"))
