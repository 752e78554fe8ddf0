"""Known truths: what well-known papers say of whole runs, beside what is predicted.

The records stand in tests/published/known_truths.jsonl. Papers state a utilisation or a number of
days for them and no step time, so no constant is fitted to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuplan.api.validation import RecordedRuns
from gpuplan.planner.validation.errors import Observation
from gpuplan.profiles.records import RunRecord
from gpuplan.profiles.tracing_process.batch import Profiler, profile_all

RECORDS = Path(__file__).parents[2] / "tests" / "published" / "known_truths.jsonl"
SECONDS_PER_DAY = 86400


@dataclass(frozen=True, kw_only=True)
class Truth:
    """One figure of a paper and its prediction, with the ends of the 80 % interval."""

    id: str
    source: str | None
    unit: str
    published: float
    predicted: float
    ends: tuple[float, float]

    @property
    def error(self) -> float:
        """Return predicted ÷ published − 1."""
        return self.predicted / self.published - 1


def known_truths(profiler: Profiler = profile_all) -> list[Truth]:
    """Return every known truth with its prediction."""
    runs = RecordedRuns([RECORDS], profiler=profiler)
    return [
        truth
        for record, seen in zip(runs.records, runs.observations(), strict=True)
        for truth in _truths_of(record, seen)
    ]


def _truths_of(record: RunRecord, seen: Observation) -> Iterable[Truth]:
    step = seen.predicted_step_time_s
    assert step is not None, seen.skipped
    assert seen.ideal_step_time_s is not None
    stated: dict[str, Any] = record.measured.model_extra or {}
    if "mfu" in stated:  # Nothing is computed again in these runs: MFU is HFU.
        mfu = [seen.ideal_step_time_s / one for one in (step.value, step.high, step.low)]
        yield _truth(record, "MFU", stated["mfu"], *mfu)
    if "days" in stated:
        assert record.global_batch is not None
        steps = stated["tokens"] / (record.global_batch * record.params["seq_len"])
        days = [steps * one / SECONDS_PER_DAY for one in (step.value, step.low, step.high)]
        yield _truth(record, "days", stated["days"], *days)


def _truth(
    record: RunRecord, unit: str, published: float, predicted: float, low: float, high: float
) -> Truth:
    return Truth(
        id=record.id,
        source=record.source,
        unit=unit,
        published=published,
        predicted=predicted,
        ends=(low, high),
    )
