"""A run that is ended at a chosen moment and started again, as its tests and its soak do it."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any, Literal

from runner_jobs import REPOSITORY, TIMEOUT_S, Ranks, losses, make_job, plan_of, run, start

from gpuplan.launcher.runner.job import CheckpointPolicy

Moment = Literal["before a write", "in a write", "after a write"]
GPT2 = REPOSITORY / "examples" / "gpt2.py"
SIZE = {"layers": 2, "hidden": 32, "heads": 4, "vocab": 101, "seq_len": 16}
STEPS_IN_A_WRITE = 20
"""Steps of this small model that pass while a checkpoint is written beside them; more of them on a
busy machine, but the next checkpoint waits until it is whole."""
POLL_S = 0.002


class EndedRun:
    """One run in `out_dir` of a process that checkpoints every `interval` steps."""

    def __init__(self, out_dir: Path, interval: int) -> None:
        self.out_dir = out_dir
        self.interval = interval
        self.policy = CheckpointPolicy(every_steps=interval)
        self._folder = make_job(out_dir, GPT2, **self._job(100_000), checkpoint=self.policy)
        self.kept = 0
        """Step of the newest whole checkpoint."""

    def end_at(self, moment: Moment, number: int) -> None:
        """Start it, end it by a signal at this moment, and check what is left."""
        ranks = start(self._folder)
        self._wait(lambda: self._newest() > self.kept, ranks)
        if moment == "before a write":
            due = self._newest() + self.interval // 2
            self._wait(lambda: self._reached() >= due and not self._partial(), ranks)
        elif moment == "after a write":
            first = self._newest()
            self._wait(lambda: self._newest() > first, ranks)
        else:
            self._stop_in_a_write(ranks)
        self._end(ranks, number)

    def end_after(self, steps: int, number: int) -> None:
        """Start it, end it this many steps after its checkpoint, and check what is left.

        Where the first new checkpoint takes more steps to be written it is ended once that is.
        """
        ranks = start(self._folder)
        due = self.kept + steps
        self._wait(lambda: self._reached() >= due and self._newest() > self.kept, ranks)
        self._end(ranks, number)

    def went_on_as_if_never_ended(self) -> tuple[list[float], list[float]]:
        """Return the losses of this run and of one that was never ended."""
        steps = self.kept + 2
        found = []
        for out_dir in (self.out_dir, self.out_dir / "straight"):
            done = run(make_job(out_dir, GPT2, **self._job(steps)))
            assert done.returncode == 0, done.stderr[-2000:]
            found.append(losses(out_dir)[:steps])
        return found[0], found[1]

    def _job(self, steps: int) -> dict[str, Any]:
        return {"plan": plan_of(), "params": SIZE, "steps": steps}

    def _end(self, ranks: Ranks, number: int) -> None:
        ranks.signal(number)
        ranks.signal(signal.SIGCONT)
        code = ranks.wait()
        assert code == (0 if number == signal.SIGTERM else -number), ranks.said()[-2000:]
        step, reached = self._newest(), self._reached()
        assert step > self.kept, "the checkpoint was lost"
        allowed = 0 if number == signal.SIGTERM else 2 * self.interval
        assert reached - step <= allowed
        # A kill between naming the newest and removing the oldest leaves one more, for a while.
        assert len(whole_checkpoints(self.out_dir)) <= self.policy.keep + 1
        self.kept = step

    def _stop_in_a_write(self, ranks: Ranks) -> None:
        """Hold the process while it writes; what is written may not have its name meanwhile."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            self._wait(self._partial, ranks)
            ranks.signal(signal.SIGSTOP)
            time.sleep(10 * POLL_S)
            if self._partial():
                return
            ranks.signal(signal.SIGCONT)
        raise AssertionError("it was never seen to write a checkpoint")

    def _partial(self) -> bool:
        return any((self.out_dir / "checkpoints").glob(".step-*"))

    def _newest(self) -> int:
        found = whole_checkpoints(self.out_dir)
        return int(found[-1].name.removeprefix("step-")) if found else 0

    def _reached(self) -> int:
        return reached(self.out_dir)

    def _wait(self, is_reached: Any, ranks: Ranks) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_reached():
            assert not ranks.has_ended(), ranks.said()[-2000:]
            assert time.monotonic() < deadline_s, ranks.said()[-2000:]
            time.sleep(POLL_S)


def reached(out_dir: Path) -> int:
    """Return the last step that the metrics tell of; 0 if none."""
    path = out_dir / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    whole = [line for line in lines[-2:] if line.endswith("}")]
    return int(json.loads(whole[-1])["step"]) if whole else 0


def whole_checkpoints(out_dir: Path) -> list[Path]:
    """Return the folders of the checkpoints that have their name, oldest first."""
    return sorted(one.parent for one in (out_dir / "checkpoints").glob("step-*/run.json"))
