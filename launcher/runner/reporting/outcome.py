"""How a run went: its last step, its times, why it ended."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

RECENT_STEPS = 50


@dataclass
class Outcome:
    """How a run ended."""

    step: int
    stopped: bool
    """Whether a signal ended it before its last step."""
    elapsed_s: float
    times_s: list[float] = field(default_factory=list)
    """Time of every settled step."""
    parts_s: dict[str, list[float]] = field(default_factory=dict)
    last_loss: float | None = None
    data_ended: bool = False
    """Whether a stream ended before the last step, and the run with it."""

    def add(self, step_s: float, parts_s: dict[str, float]) -> None:
        """Count the time of a settled step, and of its parts."""
        self.times_s.append(step_s)
        for part, seconds in parts_s.items():
            self.parts_s.setdefault(part, []).append(seconds)

    def typical_s(self, step_s: float) -> float:
        """Return the median of the newest steps; the given time where none has settled."""
        return statistics.median(self.times_s[-RECENT_STEPS:] or [step_s])
