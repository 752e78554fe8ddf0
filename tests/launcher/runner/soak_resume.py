"""A run that is ended again and again at random moments: `make soak`.

The chosen moments are in test_resume.py. Each round starts the run, ends it some steps after its
checkpoint, by SIGKILL four times in five, and checks that a whole checkpoint is left; at the end
the curve is that of a run that was never ended.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from ended_runs import STEPS_IN_A_WRITE, EndedRun

ROUNDS = 25
INTERVAL = 40
EXACT = 1e-6
"""Tolerance of losses near 4.6 in fp32, where only the order of sums differs."""


@pytest.mark.timeout(0)
def test_an_end_at_any_moment_leaves_a_whole_checkpoint(
    tmp_path: Path, soak_seed: int, soak_until_s: float
) -> None:
    print(f"--soak-seed {soak_seed}")
    chosen = random.Random(soak_seed)
    ended = EndedRun(tmp_path, INTERVAL)
    rounds = 0
    while rounds < ROUNDS and (not rounds or time.monotonic() < soak_until_s):
        # Past the first new checkpoint by up to an interval, and so often inside a write.
        steps = INTERVAL + STEPS_IN_A_WRITE + chosen.randrange(INTERVAL)
        number = signal.SIGTERM if chosen.random() < 0.2 else signal.SIGKILL
        ended.end_after(steps, number)
        rounds += 1
    print(f"{rounds} of {ROUNDS} rounds")
    through, straight = ended.went_on_as_if_never_ended()

    assert through == pytest.approx(straight, abs=EXACT)
