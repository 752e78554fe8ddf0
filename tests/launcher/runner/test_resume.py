"""A run that is continued is the run that was never stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import (
    REPOSITORY,
    TIMEOUT_S,
    command,
    environment,
    losses,
    make_job,
    metrics,
    plan_of,
    run,
    train,
)

from gpuplan.launcher.runner.job import CheckpointPolicy

pytestmark = pytest.mark.slow

GPT2 = REPOSITORY / "examples" / "gpt2.py"
SIZE = {"layers": 2, "hidden": 32, "heads": 4, "vocab": 101, "seq_len": 16}
NOISY = REPOSITORY / "tests" / "support" / "dataset_model.py"
EVERY = CheckpointPolicy(every_steps=3)
EXACT = 1e-6
"""Of losses near 4.6 in fp32, where only the order of sums differs."""
KILLS = 20
ENDS = [signal.SIGKILL] * KILLS + [signal.SIGTERM] * 5
STEPS_IN_A_WRITE = 20
"""Most steps of this small model that pass while a checkpoint is written beside them."""


def test_data_dropout_and_augmentation_continue_exactly(tmp_path: Path) -> None:
    def noisy(folder: Path, steps: int) -> list[float]:
        plan = plan_of({"data": 2}, micro_batch=4)
        return train(folder, NOISY, 2, plan=plan, steps=steps, checkpoint=EVERY, workers=1)

    whole = noisy(tmp_path / "whole", 12)  # Two epochs of 50 samples, 8 a step.
    noisy(tmp_path / "parts", 7)
    continued = noisy(tmp_path / "parts", 12)

    assert continued == whole
    elapsed_s = [line["elapsed_s"] for line in metrics(tmp_path / "parts")]
    assert elapsed_s == sorted(elapsed_s), "time, and with it dollars, began anew"


def test_another_number_of_processes_continues_the_curve(tmp_path: Path) -> None:
    def part(layout: dict[str, Any], accum: int, processes: int, steps: int, name: str) -> Any:
        plan = plan_of(layout, grad_accum=accum)
        folder = tmp_path / name
        return train(folder, GPT2, processes, plan=plan, params=SIZE, steps=steps, checkpoint=EVERY)

    whole = part({}, 4, 1, 10, "whole")
    part({"data": 4, "shard": 4, "zero_stage": 3}, 1, 4, 3, "parts")
    part({"pipeline": 2}, 4, 2, 5, "parts")
    part({"data": 2, "shard": 2, "zero_stage": 1}, 2, 2, 7, "parts")
    continued = part({}, 4, 1, 10, "parts")

    assert continued == pytest.approx(whole, abs=EXACT)


def test_sigterm_keeps_the_step_and_ends_well(tmp_path: Path) -> None:
    folder = make_job(
        tmp_path, GPT2, plan=plan_of({"data": 2}), params=SIZE, steps=100_000, checkpoint=EVERY
    )
    process = _start(folder, 2)
    _wait_for_steps(tmp_path, 5, process)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_S)

    done = metrics(tmp_path)[-1]["step"]
    assert [one.name for one in _whole(tmp_path)][-1] == f"step-{done:08d}"
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["stopped"] is True and record["steps"] == done
    assert not (tmp_path / "failure.json").exists()


def test_an_end_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    interval, steps = 40, 100_000
    policy = CheckpointPolicy(every_steps=interval)
    folder = make_job(tmp_path, GPT2, plan=plan_of(), params=SIZE, steps=steps, checkpoint=policy)
    kept = 0
    for attempt, end in enumerate(ENDS):
        process = _start(folder, 1)
        # Each kill comes at another moment of the interval, and often inside a write.
        moment = interval + STEPS_IN_A_WRITE + 7 * attempt % interval
        _wait_for_steps(tmp_path, kept + moment, process)
        os.killpg(process.pid, end)
        process.communicate(timeout=TIMEOUT_S)
        newest = _whole(tmp_path)[-1]
        step = json.loads((newest / "run.json").read_text())["step"]
        reached = metrics(tmp_path)[-1]["step"]

        assert step > kept, "the checkpoint was lost"
        assert reached - step <= (0 if end == signal.SIGTERM else interval + STEPS_IN_A_WRITE)
        # A kill between naming the newest and removing the oldest leaves one more, for a while.
        assert len(_whole(tmp_path)) <= policy.keep + 1
        kept = step
    through = _finish(tmp_path, kept + 2)
    straight = train(tmp_path / "straight", GPT2, 1, plan=plan_of(), params=SIZE, steps=kept + 2)

    assert through == pytest.approx(straight, abs=EXACT)


def _finish(out_dir: Path, steps: int) -> list[float]:
    folder = make_job(out_dir, GPT2, plan=plan_of(), params=SIZE, steps=steps)
    done = run(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return losses(out_dir)[:steps]


def _whole(out_dir: Path) -> list[Path]:
    return sorted(one.parent for one in (out_dir / "checkpoints").glob("step-*/run.json"))


def _start(folder: Path, processes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(folder, processes),
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _wait_for_steps(out_dir: Path, step: int, process: subprocess.Popen[str]) -> None:
    limit_s = time.monotonic() + TIMEOUT_S
    path = out_dir / "metrics.jsonl"
    while time.monotonic() < limit_s:
        assert process.poll() is None, process.communicate()[1][-2000:]
        if path.exists():
            lines = path.read_text().splitlines()
            if lines and lines[-1].endswith("}") and json.loads(lines[-1])["step"] >= step:
                return
        time.sleep(0.002)
    raise AssertionError(f"step {step} was not reached")
