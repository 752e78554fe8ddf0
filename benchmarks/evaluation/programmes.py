"""Published programmes: the accelerator hours of whole trainings, beside what is expected.

The records stand in tests/published/programmes.jsonl. Each says how many tokens it trained on and
the hours it took; what the source does not say (often the number of accelerators and the layout) is
named in `assumed`. No constant and no prior was fitted to them: planner/data/stops.toml was written
before they were predicted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuplan.api.validation import RecordedRuns
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.cost.run_cost import steps_of
from gpuplan.planner.cost.start_up import start_up_s
from gpuplan.planner.goodput.expected_run import expected_run
from gpuplan.planner.goodput.stops import Rented, State, stops_of
from gpuplan.planner.plan.parts import Estimated
from gpuplan.planner.software.checkpoint_size import usual_checkpoint_bytes
from gpuplan.planner.validation.errors import Observation
from gpuplan.profiles.records import RunRecord
from gpuplan.profiles.tracing_process.batch import Profiler, profile_all

RECORDS = Path(__file__).parents[2] / "tests" / "published" / "programmes.jsonl"
SECONDS_PER_HOUR = 3600
CHOICES = ("layout", "micro_batch", "recompute")
UNSTATED_DOUBT = 0.214
"""Half an 80 % interval of the logarithm of the step time, where the source does not say how the
step was split or recomputed. In the four open sweeps (docs/accuracy.md, regret) the measured times
of setups within twice the best spread by 0.12 (standard deviation of the logarithm, mean over the
sweeps of a source and over the sources: `regret.log_spread`); theirs and ours are two draws of it:
1.28 x 1.41 x 0.12. `tests/test_accuracy.py` computes it."""


@dataclass(frozen=True, kw_only=True)
class Programme:
    """One training with its published accelerator hours, and what is predicted for it."""

    id: str
    group: str
    source: str | None
    accelerator: str
    accelerators: int
    published_hours: float
    training_hours: float
    """Predicted: steps alone."""
    expected_hours: float
    """Predicted: with start, evaluation, checkpoints, failures."""
    low_hours: float
    high_hours: float
    goodput: float
    left_out: str
    assumed: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Expected ÷ published hours."""
        return self.expected_hours / self.published_hours

    @property
    def is_inside(self) -> bool:
        """Whether the published hours lie in the 80 % interval."""
        return self.low_hours <= self.published_hours <= self.high_hours

    @property
    def width(self) -> float:
        """The interval as one factor on either side."""
        return (self.high_hours / self.low_hours) ** 0.5


def programmes(
    profiler: Profiler = profile_all, path: Path = RECORDS, *, start_s: float | None = None
) -> list[Programme]:
    """Return every published programme with its prediction.

    Args:
        profiler: makes the Profiles.
        path: the records; each states its `tokens`, or how many `steps` it took.
        start_s: what the published hours hold of renting and setting up; None: all of it.
    """
    runs = RecordedRuns([path], profiler=profiler)
    start_s = start_up_s() if start_s is None else start_s
    return [
        _programme(record, seen, start_s)
        for record, seen in zip(runs.records, runs.observations(), strict=True)
    ]


def median_ratio(found: Sequence[Programme]) -> float:
    """Return the median of expected ÷ published hours."""
    return statistics.median(one.ratio for one in found)


def _programme(record: RunRecord, seen: Observation, start_s: float) -> Programme:
    step = seen.predicted_step_time_s
    assert step is not None, (record.id, seen.skipped)
    stated: dict[str, Any] = record.measured.model_extra or {}
    assert record.global_batch is not None and record.accelerators is not None
    steps = stated.get("steps")
    if steps is None:
        steps = steps_of(stated["tokens"] / record.params["seq_len"], record.global_batch)
    training_s = _of_steps(steps, step, doubt=_doubt(record))
    nodes = max(1, record.accelerators // (record.per_node or 8))
    device = load_catalogue().accelerators[seen.accelerator]
    rented = Rented(
        accelerator=device,
        accelerators=record.accelerators,
        nodes=nodes,
        purchase="owned",
        provider="",
        region="",
        instance_type="",
    )
    parameters = stated["parameters"]
    state = State(checkpoint_bytes=usual_checkpoint_bytes(parameters), parts=record.accelerators)
    run = expected_run(training_s, stops_of(rented, state, start_s=start_up_s()))
    count = record.accelerators / SECONDS_PER_HOUR
    return Programme(
        id=record.id,
        group=seen.source_group,
        source=record.source,
        accelerator=seen.accelerator,
        accelerators=record.accelerators,
        published_hours=stated["accelerator_hours"],
        training_hours=count * training_s.value,
        expected_hours=count * (start_s + run.elapsed_s),
        low_hours=count * (start_s + run.low_s),
        high_hours=count * (start_s + run.high_s),
        goodput=training_s.value / (start_s + run.elapsed_s),
        left_out=stated["left_out"],
        assumed=tuple(record.assumed),
    )


def _doubt(record: RunRecord) -> float:
    """Return the doubt about a step whose setup its source does not state."""
    assumed = {name.split()[0].split(".")[0] for name in record.assumed}
    return UNSTATED_DOUBT if assumed.intersection(CHOICES) else 0.0


def _of_steps(steps: int, step: Estimated, *, doubt: float) -> Estimated:
    """Return the time of all steps, its interval wider by a doubt of the logarithm."""
    up = math.hypot(math.log(step.high / step.value), doubt)
    down = math.hypot(math.log(step.value / step.low), doubt)
    whole_s = steps * step.value
    return Estimated(
        value=whole_s, low=whole_s * math.exp(-down), high=whole_s * math.exp(up), basis=step.basis
    )
