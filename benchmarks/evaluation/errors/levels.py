"""How much of an error is a level: what is left where groups are multiplied by their best factor.

The factors are taken from the very runs that they are judged by, so what is left is a floor: no
constant that only moves a level can reach below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gpuplan.planner.validation.errors import Observation
from gpuplan.profiles.records import RunRecord

from ..groups import LARGE_ENOUGH, NEVER_FITTED
from ..tables import percent, row_of

SHOWN = 8
"""Groups in the table: those with the largest errors."""
INTRODUCTION = """\
How much of these errors is a level. Below, each group of {large} runs and more is multiplied by the
one factor that makes its error least; then by one for each of its devices, and by one for each
model on each device. The factors come from the very runs that they are judged by, so these are
floors. Over {groups} groups the error of {mape} falls to {source} with a perfect level for every
source, to {device} with one for every device of a source, and to {model} with one for every model
there. The largest:"""


@dataclass(frozen=True, kw_only=True)
class Levels:
    """The errors of one group, as they are and with perfect levels."""

    group: str
    n: int
    mape: float
    source: float
    """With one factor."""
    device: float
    """With one for each device."""
    model: float
    """With one for each model on each device."""


def best_level(ratios: Sequence[float]) -> float:
    """Return the factor f that makes the mean of |f r - 1| least: a weighted median of 1 / r.

    >>> best_level([0.5, 0.5, 0.8])
    2.0
    """
    half, reached = sum(ratios) / 2, 0.0
    for ratio in sorted(ratios, reverse=True):
        reached += ratio
        if reached >= half:
            return 1 / ratio
    raise ValueError("no ratio")


def levels_of(
    observations: Iterable[Observation], records: Iterable[RunRecord], groups: Mapping[str, str]
) -> list[Levels]:
    """Return the levels of every group of some size that takes part in fits, largest error first.

    Args:
        observations: runs predicted under some protocol.
        records: the same runs in the same order.
        groups: by id of a run.
    """
    found: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for seen, record in zip(observations, records, strict=True):
        group = groups.get(seen.id)
        if group and seen.measured_step_time_s and seen.predicted_step_time_s:
            ratio = seen.predicted_step_time_s.value / seen.measured_step_time_s
            model = record.model_name or record.model
            found[group].append((ratio, seen.accelerator, model))
    rows = [
        Levels(
            group=group,
            n=len(runs),
            mape=fmean(abs(ratio - 1) for ratio, _, _ in runs),
            source=_left(runs, lambda _: ()),
            device=_left(runs, lambda run: run[1:2]),
            model=_left(runs, lambda run: run[1:]),
        )
        for group, runs in found.items()
        if len(runs) >= LARGE_ENOUGH and group not in NEVER_FITTED
    ]
    return sorted(rows, key=lambda row: (-row.mape, row.group))


def _left(
    runs: Sequence[tuple[float, str, str]],
    key: Callable[[tuple[float, str, str]], tuple[str, ...]],
) -> float:
    """Return the mean error with one factor for the runs of each key."""
    parts: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for run in runs:
        parts[key(run)].append(run[0])
    total = 0.0
    for ratios in parts.values():
        level = best_level(ratios)
        total += sum(abs(level * ratio - 1) for ratio in ratios)
    return total / len(runs)


def levels_part(rows: Sequence[Levels]) -> str:
    """Return the part of the page; nothing without a group."""
    if not rows:
        return ""
    said = INTRODUCTION.format(
        large=LARGE_ENOUGH,
        groups=len(rows),
        mape=percent(fmean(row.mape for row in rows)),
        source=percent(fmean(row.source for row in rows)),
        device=percent(fmean(row.device for row in rows)),
        model=percent(fmean(row.model for row in rows)),
    )
    headings = "group", "n", "MAPE", "its level", "of each device", "of each model"
    lines = [row_of(headings), row_of(("---", *["--:"] * 5))]
    for row in rows[:SHOWN]:
        shares = row.mape, row.source, row.device, row.model
        lines.append(row_of((row.group, str(row.n), *map(percent, shares))))
    return "\n".join([said, "", *lines])
