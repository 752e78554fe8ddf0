"""A checkpoint that has arrived in the bucket stays until a newer one has, too."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.runner.checkpoint import uploads
from gpuplan.launcher.runner.checkpoint.checkpoint import Checkpoints
from gpuplan.launcher.runner.checkpoint.contents import Contents
from gpuplan.launcher.runner.checkpoint.folder import RUN_FILE, whole_checkpoints
from gpuplan.launcher.runner.checkpoint.uploads import (
    SAVED_FILE,
    UPLOADED_AFTER_S,
    deletable,
    lost,
    states_root,
)
from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.processes.processes import Processes

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

NOW_S = 1_000_000.0
CPU = torch.device("cpu")
ALONE = Processes(
    rank=0, world=1, local_rank=0, nodes=1, device=CPU, host_group=None, checkpoint_group=None
)


class Bucket:
    """A mounted bucket: what the node sees, and rclone's words on what has arrived."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.mount = folder / "home", folder / "outputs"
        self.checkpoints = self.mount / "runs" / "r1" / "checkpoints"
        self.states = self.home / ".cache/rclone/0a1b/vfsMeta/sky-s3/results/runs/r1/checkpoints"
        self.checkpoints.mkdir(parents=True)
        is_mount = os.path.ismount
        monkeypatch.setattr(os.path, "ismount", lambda path: path == self.mount or is_mount(path))
        monkeypatch.setenv("HOME", str(self.home))

    def add(self, step: int, *, arrived: bool | None, age_s: float = 0.0) -> Path:
        """Write a checkpoint; `arrived` None leaves no word of rclone's."""
        checkpoint = self.checkpoints / f"step-{step:08d}"
        checkpoint.mkdir()
        for name in ("__0_0.distcp", RUN_FILE):
            (checkpoint / name).write_text("{}")
            os.utime(checkpoint / name, (NOW_S - age_s, NOW_S - age_s))
        if arrived is not None:
            self.say(step, arrived=arrived)
        return checkpoint

    def say(self, step: int, *, arrived: bool) -> None:
        """Let rclone have uploaded a checkpoint's largest file, or not."""
        states = self.states / f"step-{step:08d}"
        states.mkdir(parents=True, exist_ok=True)
        for name, dirty in (("__0_0.distcp", not arrived), (RUN_FILE, False)):
            state = {"Size": 2, "Rs": [{"Pos": 0, "Size": 2}], "Fingerprint": "2", "Dirty": dirty}
            (states / name).write_text(json.dumps(state))

    def goes(self) -> list[int]:
        """Return the steps that may be deleted."""
        whole = whole_checkpoints(self.checkpoints)
        found = deletable(whole, keep=2, best=None, now_s=NOW_S)
        return [int(one.name.removeprefix("step-")) for one in found]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return Bucket(tmp_path, monkeypatch)


def test_the_only_one_that_has_arrived_stays(bucket: Bucket) -> None:
    """A notice of the cloud, soon after a checkpoint: the third one is written at once."""
    bucket.add(51, arrived=True)
    bucket.add(117, arrived=False)
    bucket.add(123, arrived=False)
    assert bucket.goes() == []
    bucket.say(117, arrived=True)
    assert bucket.goes() == [51]


def test_uploads_slower_than_checkpoints_end_all_the_same(bucket: Bucket) -> None:
    """The oldest that is still uploaded stays, and those between it and the newest two go."""
    bucket.add(10, arrived=True)
    for step in (20, 30, 40, 50, 60):
        bucket.add(step, arrived=False)
    assert bucket.goes() == [30, 40]
    bucket.say(20, arrived=True)
    assert bucket.goes() == [10, 40]


def test_what_left_the_cache_has_arrived_and_what_cannot_be_read_has_not(bucket: Bucket) -> None:
    for step in (10, 20, 30):
        bucket.add(step, arrived=True)
    shutil.rmtree(bucket.states / "step-00000020")
    assert bucket.goes() == [10]
    bucket.say(20, arrived=True)
    for step in (20, 30):
        (bucket.states / f"step-{step:08d}" / "__0_0.distcp").write_text('{"Size": ')
    assert bucket.goes() == []


def test_without_word_of_rclone_only_age_counts(bucket: Bucket) -> None:
    bucket.add(10, arrived=None, age_s=UPLOADED_AFTER_S + 1200)
    bucket.add(20, arrived=None, age_s=UPLOADED_AFTER_S - 60)
    bucket.add(30, arrived=None, age_s=600)
    bucket.add(40, arrived=None)
    assert states_root(bucket.checkpoints / "step-00000040", bucket.home) is None
    assert bucket.goes() == []
    os.utime(bucket.checkpoints / "step-00000020" / RUN_FILE, (0, NOW_S - UPLOADED_AFTER_S))
    assert bucket.goes() == [10]


def saved(folder: Path, *steps: int, **policy: Any) -> Checkpoints:
    checkpoints = Checkpoints(folder, CheckpointPolicy(**policy), ALONE)
    checkpoints.open()
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in steps:
        facts = {"step": step, "elapsed_s": 1.0, "scaler": None}
        contents = Contents(model=model, optimizer=optimizer)
        checkpoints.save(contents, facts=facts, elapsed_s=1.0)
        checkpoints.finish()
    return checkpoints


def test_the_runner_deletes_none_before_a_newer_one_has_arrived(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(bucket.checkpoints, 1, 2, 3, in_bucket=True)
    names = [one.name for one in whole_checkpoints(bucket.checkpoints)]
    assert names == [f"step-{step:08d}" for step in (1, 2, 3)]
    monkeypatch.setattr(uploads, "UPLOADED_AFTER_S", 0.0)
    saved(bucket.checkpoints, 4, in_bucket=True)
    assert [one.name for one in whole_checkpoints(bucket.checkpoints)][0] == "step-00000003"
    saved(tmp_path / "disk", 1, 2, 3)
    assert [one.name for one in whole_checkpoints(tmp_path / "disk")][0] == "step-00000002"
    assert not (tmp_path / "disk" / SAVED_FILE).exists()


def test_a_bucket_that_lost_its_checkpoints_is_not_begun_anew(bucket: Bucket) -> None:
    saved(bucket.checkpoints, 51, 117, in_bucket=True)
    for one in whole_checkpoints(bucket.checkpoints):
        shutil.rmtree(one)
    checkpoints = Checkpoints(bucket.checkpoints, CheckpointPolicy(in_bucket=True), ALONE)
    with pytest.raises(UsageError, match="up to step 117: what is left") as refused:
        checkpoints.is_followed()
    assert "launch the plan again, which takes another folder" in str(refused.value)
    anew = CheckpointPolicy(in_bucket=True, resume="never")
    assert not Checkpoints(bucket.checkpoints, anew, ALONE).is_followed()


def test_stubs_of_two_checkpoints_say_that_the_first_was_whole(bucket: Bucket) -> None:
    (bucket.checkpoints / "step-00000051").mkdir()
    assert lost(bucket.checkpoints) is None, "interrupted while its first one was uploaded"
    (bucket.checkpoints / "step-00000117").mkdir()
    assert lost(bucket.checkpoints) is not None
