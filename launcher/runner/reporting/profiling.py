"""Some steps under torch's profiler: a trace to look at, and its kernels by what they do.

    profile/trace.json.gz   for https://ui.perfetto.dev or chrome://tracing
    profile/kernels.json    seconds of one step of the first process: `gpuplan actuals` reads them

Only the first process is watched. Watching slows a step, so the time of none of them counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, supported_activities

from ....catalog.files import write_atomically
from ..job import Job
from .kernel_times import step_times
from .metrics import say

FOLDER = "profile"


class StepProfiler:
    """Watches the steps that are asked for; what fails in it is said once and ends no run."""

    def __init__(
        self,
        job: Job,
        device: torch.device,
        *,
        is_first: bool,
        tell: Callable[[str], None] = say,
    ) -> None:
        self._steps = job.training.profile_steps if is_first else None
        self._asked = job.training.profile_steps
        self._folder = job.out_dir / FOLDER
        self._device = device
        self._tell = tell
        self._profiler: profile | None = None
        self._first = 0
        self._count = 0
        """Steps that were watched; some twice after a divergence."""
        self._began_s = 0.0

    def covers(self, step: int) -> bool:
        """Return whether a step is watched, on any process: none of its times counts."""
        return self._asked is not None and self._asked[0] <= step <= self._asked[1]

    def begin(self, step: int) -> None:
        """Start with the step that begins now, if it is the first one that is asked for."""
        if self._steps is None or self._profiler is not None or not self.covers(step):
            return
        self._tried(lambda: self._start(step))

    def end(self, step: int) -> bool:
        """Count a step that is done; write all if it was the last one, and return whether it was.

        Args:
            step: steps that are done.
        """
        if self._steps is None or self._profiler is None:
            return False
        self._count += 1
        if step < self._steps[1]:
            return False
        self._tried(lambda: self._write(step))
        return True

    def close(self, step: int) -> None:
        """Write what was seen in a run that ends before the last step that is asked for."""
        if self._profiler is not None:
            self._tried(lambda: self._write(step))

    def _start(self, step: int) -> None:
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda" and ProfilerActivity.CUDA in supported_activities():
            activities.append(ProfilerActivity.CUDA)
            torch.cuda.synchronize(self._device)
        self._profiler = profile(activities=activities, acc_events=True)
        self._profiler.start()
        self._first, self._began_s = step, time.perf_counter()

    def _write(self, step: int) -> None:
        profiler, self._profiler, self._steps = self._profiler, None, None
        assert profiler is not None
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self._began_s
        profiler.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        scratch = self._folder / "partial.json.gz"
        profiler.export_chrome_trace(str(scratch))
        scratch.replace(self._folder / "trace.json.gz")
        found: dict[str, Any] = {
            "first_step": self._first,
            "last_step": step,
            **step_times(
                profiler.events() or (),
                steps=self._count,
                seconds=seconds,
                device=self._device.type,
            ),
        }
        write_atomically(self._folder / "kernels.json", json.dumps(found, indent=1) + "\n")
        self._tell(
            f"steps {self._first} to {step} are profiled: {self._folder / 'trace.json.gz'};"
            " `gpuplan actuals` sets their kernels beside the plan"
        )

    def _tried(self, act: Callable[[], None]) -> None:
        try:
            act()
        # Whatever it is (a full disk, no rights to the counters): a trace is not worth the run.
        except Exception as error:
            self._profiler, self._steps = None, None
            lines = str(error).strip().splitlines()
            why = ": ".join([type(error).__name__, *lines[:1]])
            self._tell(f"the steps are not profiled ({why}); the run goes on")
