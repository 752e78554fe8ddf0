"""The fault matrix of 200: `make soak`, or `pytest tests/launcher/soak_faults.py --soak-seed N`.

Each case is one fault at one moment, drawn by the seed: of a launch and its store, of a guard, of
a checkpoint on the disk, of a run that writes one. None may lose a checkpoint, leave a machine,
launch twice, lose a dollar or show a traceback. Some of the same cases are ordinary tests.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from checkpoint_faults import checkpoint_cases, play_checkpoint
from ended_runs import EndedRun, Moment
from guard_faults import guard_cases, play_guard
from launch_fault_cases import cases
from launch_faults import play

LAUNCHES, GUARDS, CHECKPOINTS, RUNS = 150, 20, 20, 10
INTERVAL = 40
EXACT = 1e-6
MOMENTS: tuple[Moment, ...] = ("in a write", "before a write", "after a write")

pytestmark = [
    pytest.mark.timeout(0),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]


def all_well(
    drawn: Sequence[Any], play_one: Callable[[Any, Path], list[str]], folder: Path, until_s: float
) -> None:
    """Play cases until the time is over; say how many, and fail with what is wrong of each."""
    folder.chmod(0o755)
    problems: list[str] = []
    played = 0
    for case in drawn:
        if played and time.monotonic() > until_s:
            break
        problems += [f"{case}: {one}" for one in play_one(case, folder / f"{played}")]
        played += 1
    print(f"{played} of {len(drawn)} cases, {len(problems)} problems")
    assert problems == []


def test_launches(tmp_path: Path, soak_seed: int, soak_until_s: float) -> None:
    print(f"--soak-seed {soak_seed}")
    all_well(cases(soak_seed, LAUNCHES), play, tmp_path, soak_until_s)


def test_guards(tmp_path: Path, soak_seed: int, soak_until_s: float) -> None:
    all_well(guard_cases(soak_seed, GUARDS), play_guard, tmp_path, soak_until_s)


def test_checkpoints(tmp_path: Path, soak_seed: int, soak_until_s: float) -> None:
    all_well(checkpoint_cases(soak_seed, CHECKPOINTS), play_checkpoint, tmp_path, soak_until_s)


def test_runs_that_write_a_checkpoint(tmp_path: Path, soak_seed: int, soak_until_s: float) -> None:
    chosen = random.Random(soak_seed)
    ended = EndedRun(tmp_path, INTERVAL)
    played = 0
    while played < RUNS and (not played or time.monotonic() < soak_until_s):
        number = signal.SIGTERM if chosen.random() < 0.3 else signal.SIGKILL
        ended.end_at(MOMENTS[played % len(MOMENTS)], number)
        played += 1
    print(f"{played} of {RUNS} cases")
    through, straight = ended.went_on_as_if_never_ended()
    assert through == pytest.approx(straight, abs=EXACT)
