"""The numbers of a step, told when all processes have agreed on them: while the next one runs."""

from __future__ import annotations

from collections import deque

import torch

from ..parallel.parallelize import as_float
from ..processes.control import Agreed
from .outcome import Outcome
from .profiling import StepProfiler
from .report import Report

BESIDE = ("checkpoint", "evaluation", "profile", "samples")
"""Parts that are no time of the step itself."""


class StepNumbers:
    """What this process keeps of steps until they can be told, the oldest first."""

    def __init__(self, outcome: Outcome, profiler: StepProfiler) -> None:
        self.report: Report | None = None
        """Of the first process, once it is open."""
        self._outcome = outcome
        self._profiler = profiler
        self._untold: deque[tuple[float, torch.Tensor | None, float | None]] = deque()
        """(Seconds that data were waited for, gradient norm, rate) of each."""

    def __bool__(self) -> bool:
        """Return whether a step is left to tell."""
        return bool(self._untold)

    def keep(self, waited_s: float, norm: torch.Tensor | None, rate: float | None) -> None:
        """Keep what this process alone knows of the step that has run."""
        self._untold.append((waited_s, norm, rate))

    def forget(self) -> None:
        """Forget steps that are run again."""
        self._untold.clear()

    def tell(
        self,
        agreed: Agreed,
        step: int,
        parts_s: dict[str, float],
        *,
        before_s: float,
        is_settled: bool,
    ) -> None:
        """Add the oldest step to the outcome, and to the report if there is one.

        Args:
            agreed: what all processes agreed on.
            step: its number.
            parts_s: seconds of its parts, and of what ran beside it.
            before_s: how long the run had trained when its checkpoint was written.
            is_settled: whether its time counts.
        """
        outcome = self._outcome
        step_s = sum(seconds for part, seconds in parts_s.items() if part not in BESIDE)
        outcome.last_loss = agreed.loss
        waited_s, norm, rate = self._untold.popleft()
        if is_settled and not self._profiler.covers(step):
            outcome.add(step_s, parts_s)
        if self.report is not None:
            self.report.step(
                step,
                loss=agreed.loss,
                step_s=step_s,
                parts_s=parts_s,
                waited_s=waited_s,
                norm=None if norm is None else as_float(norm),
                rate=None if rate is None else float(rate),
                elapsed_s=before_s + agreed.elapsed_s,
                write_s=agreed.write_s or None,
                typical_s=outcome.typical_s(step_s),
            )
