"""What errors grow with: a slope inside groups for each property of a run, and a picture.

    error of run r in group g  =  mean of g  +  slope · log2(x_r)  +  rest

Inside groups, since sources differ in more than one property at a time: only a group that varies x
says anything. A group counts as `LARGE_ENOUGH` runs at most.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import pyplot

from gpuplan.planner.validation.errors import Observation
from gpuplan.profiles.records import RunRecord

from ..groups import LARGE_ENOUGH, NEVER_FITTED
from ..scatter import save_figure
from ..tables import percent, row_of, signed

MOST_POINTS = 0.03
"""No trend should be left above this much of the step time per doubling."""
ENOUGH_DOUBLINGS = 1.0
"""A group whose runs span less of a property says nothing about it."""
FIRST_YEAR = 2018
MOST_SHOWN = 300
"""Runs that a panel draws; of more every n-th."""

Property = Callable[[RunRecord], float | None]


def _gpus(record: RunRecord) -> float | None:
    return record.accelerators if record.accelerators > 1 else None


def _length(record: RunRecord) -> float | None:
    found = record.params.get("seq_len")
    return float(found) if found else None


def _years(record: RunRecord) -> float | None:
    """Return 2 to the power of years, so that a doubling is a year."""
    date = record.software_date
    return None if date is None else 2.0 ** (date[0] + (date[1] - 1) / 12 - FIRST_YEAR)


PROPERTIES: dict[str, tuple[str, Property]] = {
    "pipeline stages": ("doubling", lambda record: float(record.layout.pipeline)),
    "tensor ranks": ("doubling", lambda record: float(record.layout.tensor)),
    "sequence length": ("doubling", _length),
    "accelerators, of several": ("doubling", _gpus),
    "Gbit/s of a node": ("doubling", lambda record: record.inter_node_gbit_s),
    "micro-batch": ("doubling", lambda record: record.micro_batch),
    "date of the software": ("year", _years),
}


@dataclass(frozen=True)
class Trend:
    """How the error of runs moves with one property, inside groups."""

    name: str
    per: str
    runs: int
    groups: int
    slope: float
    """Change of ln(predicted ÷ measured) per doubling, or per year."""
    standard_error: float
    points: tuple[tuple[float, float], ...]
    """(doublings from the mean of its group, error from that mean) of every run that counts."""

    @property
    def stands_out(self) -> bool:
        """Whether it is larger than what is allowed, by more than chance."""
        return abs(self.slope) - 2 * self.standard_error > MOST_POINTS


def find_trends(
    records: Sequence[RunRecord], observations: Sequence[Observation], groups: Mapping[str, str]
) -> list[Trend]:
    """Return the trend of every property that at least two groups vary.

    Args:
        records: the runs.
        observations: the same runs, predicted.
        groups: group by record id.
    """
    errors = {
        seen.id: math.log(seen.predicted_step_time_s.value / seen.measured_step_time_s)
        for seen in observations
        if seen.predicted_step_time_s and seen.measured_step_time_s
    }
    known = [one for one in records if one.id in errors and one.source_group not in NEVER_FITTED]
    trends = [
        _trend(name, per, value_of, known, errors, groups)
        for name, (per, value_of) in PROPERTIES.items()
    ]
    return [trend for trend in trends if trend is not None]


def _trend(
    name: str,
    per: str,
    value_of: Property,
    records: Iterable[RunRecord],
    errors: Mapping[str, float],
    groups: Mapping[str, str],
) -> Trend | None:
    by_group: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in records:
        value = value_of(record)
        if value:
            by_group[groups[record.id]].append((math.log2(value), errors[record.id]))
    varied = [np.array(rows) for rows in by_group.values()]
    varied = [rows for rows in varied if np.ptp(rows[:, 0]) >= ENOUGH_DOUBLINGS]
    if len(varied) < 2:
        return None
    centred = [rows - rows.mean(axis=0) for rows in varied]
    weights = np.concatenate(
        [np.full(len(rows), min(len(rows), LARGE_ENOUGH) / len(rows)) for rows in centred]
    )
    x, y = np.concatenate(centred).T
    slope = (weights * x * y).sum() / (weights * x * x).sum()
    # Runs of a group share software and machine: the groups are what varies independently.
    scores = np.array([_score(rows, slope) for rows in centred])
    error = math.sqrt((scores**2).sum()) / (weights * x * x).sum()
    return Trend(
        name=name,
        per=per,
        runs=len(x),
        groups=len(centred),
        slope=float(slope),
        standard_error=float(error),
        points=tuple(zip(x.tolist(), y.tolist(), strict=True)),
    )


def _score(rows: np.ndarray, slope: float) -> float:
    weight = min(len(rows), LARGE_ENOUGH) / len(rows)
    return float(weight * (rows[:, 0] * (rows[:, 1] - slope * rows[:, 0])).sum())


def draw_trends(trends: Sequence[Trend], path: Path) -> None:
    """Write one panel a property: errors and doublings, both from the mean of their group."""
    columns = 4
    rows = math.ceil(len(trends) / columns)
    figure, panels = pyplot.subplots(
        rows, columns, figsize=(13.5, 3.1 * rows), layout="constrained", squeeze=False
    )
    for axes, trend in zip(panels.flat, trends, strict=False):
        x, y = np.array(trend.points[:: math.ceil(len(trend.points) / MOST_SHOWN)]).T
        axes.axhline(0, color="#50606f", linewidth=0.8)
        axes.scatter(x, 100 * y, s=8, color="#0072b2", alpha=0.35, linewidths=0)
        ends = np.array([x.min(), x.max()])
        axes.plot(ends, 100 * trend.slope * ends, color="#d55e00", linewidth=1.6)
        axes.set(ylim=(-60, 60), title=trend.name, xlabel=f"{trend.per}s from the group's mean")
        axes.grid(color="#e3e7ec", linewidth=0.5)
        axes.set_axisbelow(True)
    for axes in list(panels.flat)[len(trends) :]:
        axes.set_visible(False)
    figure.supylabel("error from the group's mean, points")
    save_figure(figure, path)


def trends_part(trends: Sequence[Trend], by_precision: Mapping[str, Sequence[float]]) -> str:
    """Return the part of the page about what errors grow with.

    Args:
        trends: of the runs without their source.
        by_precision: the mean errors of groups, by the precision of their runs.
    """
    if not trends:
        return ""
    lines = [
        row_of(("property", "runs", "groups", "points per doubling", "±", "above 3 points")),
        row_of(("---", *["--:"] * 4, "---")),
    ]
    for one in trends:
        per = "" if one.per == "doubling" else f" a {one.per}"
        cells = [one.name, f"{one.runs:,}", str(one.groups), f"{100 * one.slope:+.1f}{per}"]
        lines.append(
            row_of((*cells, f"{200 * one.standard_error:.1f}", "**yes**" if one.stands_out else ""))
        )
    precisions = [row_of(("precision", "groups", "mean of their biases", "of the sizes of these"))]
    precisions.append(row_of(("---", "--:", "--:", "--:")))
    for name, biases in sorted(by_precision.items()):
        sizes = [abs(one) for one in biases]
        mean, size = sum(biases) / len(biases), sum(sizes) / len(sizes)
        precisions.append(row_of((name, str(len(biases)), signed(mean), percent(size))))
    lines_text, precisions_text = "\n".join(lines), "\n".join(precisions)
    return f"""## What errors grow with

Runs without their source. Inside every group that varies a property by a doubling or more, errors
are regressed on it; groups of {LARGE_ENOUGH} runs and more weigh alike, and ± is twice the standard
error, groups taken as the independent ones. A trend above {100 * MOST_POINTS:.0f} points by more
than that is a mechanism that is missing.

![Errors against properties of the run](img/accuracy-trends.svg)

{lines_text}

{precisions_text}"""


def bias_by_precision(
    records: Sequence[RunRecord], observations: Sequence[Observation], groups: Mapping[str, str]
) -> dict[str, list[float]]:
    """Return the mean error of every group's runs in one precision, by precision."""
    precision = {one.id: one.precision or "not stated" for one in records}
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for seen in observations:
        if not seen.predicted_step_time_s or not seen.measured_step_time_s:
            continue
        if seen.source_group not in NEVER_FITTED:
            error = seen.predicted_step_time_s.value / seen.measured_step_time_s - 1
            found[precision[seen.id], groups[seen.id]].append(error)
    biases: dict[str, list[float]] = defaultdict(list)
    for (name, _), errors in found.items():
        biases[name].append(sum(errors) / len(errors))
    return dict(biases)
