"""Checkpoints in a mounted bucket: no renames, and whole only when every file has arrived."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from runner_jobs import REPOSITORY, make_job, plan_of, start, train

from gpuplan.launcher.runner.checkpoint.contents import SMALL_FILE
from gpuplan.launcher.runner.checkpoint.folder import RUN_FILE, file_sizes, whole_checkpoints
from gpuplan.launcher.runner.job import CheckpointPolicy

pytestmark = [pytest.mark.slow, pytest.mark.spread]

GPT2 = REPOSITORY / "examples" / "gpt2.py"
SIZE = {"layers": 2, "hidden": 32, "heads": 4, "vocab": 101, "seq_len": 16}
IN_BUCKET = CheckpointPolicy(every_steps=3, in_bucket=True)
FSDP = plan_of({"data": 2, "shard": 2, "zero_stage": 3})
KILLS = 5


def trained(folder: Path, steps: int) -> list[float]:
    return train(folder, GPT2, 2, plan=FSDP, params=SIZE, steps=steps, checkpoint=IN_BUCKET)


def test_files_have_their_names_from_the_start_and_a_missing_one_is_noticed(
    tmp_path: Path,
) -> None:
    whole = trained(tmp_path / "whole", 9)
    trained(tmp_path / "parts", 6)
    folder = tmp_path / "parts" / "checkpoints"
    names = [one.name for one in whole_checkpoints(folder)]
    assert names == ["step-00000003", "step-00000006"]
    newest = folder / names[-1]
    listed = json.loads((newest / RUN_FILE).read_text())["files"]
    small_bytes = (newest / SMALL_FILE).stat().st_size
    assert listed == {**file_sizes(newest), SMALL_FILE: small_bytes}
    assert set(listed) == {"__0_0.distcp", "__1_0.distcp", SMALL_FILE}
    assert {name: (newest / name).stat().st_size for name in listed} == listed
    # What the other node wrote did not arrive before the machines were taken away.
    (newest / "__1_0.distcp").write_bytes(b"half")
    assert [one.name for one in whole_checkpoints(folder)] == names[:1]
    assert trained(tmp_path / "parts", 9) == pytest.approx(whole, abs=1e-6)
    # Nothing says here what has arrived in the bucket, so the first one stays, too.
    left = [one.name for one in whole_checkpoints(folder)]
    assert left == ["step-00000003", "step-00000006", "step-00000009"]
    # One rank's part of the newest is damaged, at its full size: both ranks go back.
    part = folder / "step-00000009" / "__1_0.distcp"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    assert trained(tmp_path / "parts", 9) == pytest.approx(whole, abs=1e-6)


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    job = make_job(out, GPT2, plan=plan_of(), params=SIZE, steps=100_000, checkpoint=IN_BUCKET)
    newest = 0
    for attempt in range(KILLS):
        ranks = start(job)
        # Well past the start, at another moment of writing each time.
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and _newest(out) <= newest + 20 + attempt:
            time.sleep(0.05)
        ranks.signal(signal.SIGKILL)
        assert ranks.wait() == -signal.SIGKILL, ranks.said()[-2000:]
        after = _newest(out)
        assert after > newest
        newest = after
    shutil.rmtree(out)


def _newest(out: Path) -> int:
    whole = whole_checkpoints(out / "checkpoints")
    return int(whole[-1].name.removeprefix("step-")) if whole else 0
