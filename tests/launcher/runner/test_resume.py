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
from ended_runs import GPT2, SIZE, EndedRun, reached, whole_checkpoints
from runner_jobs import (
    REPOSITORY,
    TIMEOUT_S,
    command,
    environment,
    make_job,
    metrics,
    plan_of,
    train,
)

from gpuplan.launcher.runner.job import CheckpointPolicy

pytestmark = [pytest.mark.slow, pytest.mark.spread]

NOISY = REPOSITORY / "tests" / "support" / "models" / "dataset_model.py"
EVERY = CheckpointPolicy(every_steps=3)
EXACT = 1e-6
"""Tolerance of losses near 4.6 in fp32, where only the order of sums differs."""


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


@pytest.mark.parametrize(
    "data",
    [
        {"model": GPT2, "params": SIZE, "plan": plan_of({"data": 2})},
        # torchrun tells the whole group of each rank, to which processes that load data belong.
        {"model": NOISY, "workers": 1, "plan": plan_of({"data": 2}, micro_batch=4)},
    ],
    ids=["synthetic", "a process that loads data"],
)
def test_sigterm_keeps_the_step_and_ends_well(tmp_path: Path, data: dict[str, Any]) -> None:
    folder = make_job(tmp_path, steps=100_000, checkpoint=EVERY, **data)
    # Under torchrun, which passes on the signal that the whole group was sent already.
    process = subprocess.Popen(
        command(folder, 2),
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _wait_for_steps(tmp_path, 5, process)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_S)

    done = metrics(tmp_path)[-1]["step"]
    assert [one.name for one in whole_checkpoints(tmp_path)][-1] == f"step-{done:08d}"
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["stopped"] is True and record["steps"] == done
    assert not (tmp_path / "failure.json").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda one: one.name)
def test_an_end_leaves_a_whole_checkpoint_and_the_curve_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Random moments: soak_resume.py."""
    ended = EndedRun(tmp_path, interval=40)
    for moment in ("before a write", "in a write", "after a write"):
        ended.end_at(moment, number)
    through, straight = ended.went_on_as_if_never_ended()

    assert through == pytest.approx(straight, abs=EXACT)


def _wait_for_steps(out_dir: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while reached(out_dir) < step:
        assert process.poll() is None, process.communicate()[1][-2000:]
        assert time.monotonic() < deadline_s, f"step {step} was not reached"
        time.sleep(0.002)
