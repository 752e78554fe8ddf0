"""Scatter plots of predicted against measured step times, one SVG for each protocol.

The same numbers give the same bytes: ids come from a fixed salt, and no date is written.
"""

from __future__ import annotations

import io
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from gpuplan.planner.validation.errors import Observation
from gpuplan.planner.validation.null_models import fold_of

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "gpuplan"
matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["font.family"] = "sans-serif"

from matplotlib import pyplot  # noqa: E402  (the backend is chosen first)

MOST_SHOWN = 200
"""Runs of one source that are drawn; of larger ones every n-th, by configuration."""
FEW = 3
"""Sources of fewer runs share one entry."""
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"),
    *("#7b4fa3", "#8c564b", "#4d4d4d", "#a0a800", "#17a2a2", "#c0392b"),
)
MARKERS = "os^Dvphd<>*"
BANDS = ((1.25, "#edf0f4", "within ×÷ 1.25"), (1.10, "#d5dde8", "within 10 %"))
RATIOS = (0.25, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
MARKS = re.compile(
    r'(?P<start><g clip-path="[^"]*")>(?P<marks>\n *<use [^>]*(?P<style>style="[^"]*")/>'
    r"(?:\n *<use [^>]*(?P=style)/>)*)"
)
LONG_DECIMALS = re.compile(r"(\d\.\d\d)\d+")


def draw(observations: Sequence[Observation], title: str, path: Path) -> None:
    """Write one plot, as SVG or as what the suffix of the path says."""
    groups = _by_source(observations)
    figure, (times, ratios) = pyplot.subplots(
        1, 2, figsize=(13.5, 6.2), layout="constrained", width_ratios=(1, 1)
    )
    values = [value for points in groups.values() for point in points for value in point]
    low, high = min(values) / 1.5, max(values) * 1.5
    for factor, colour, label in BANDS:
        edges = [low / factor, high / factor], [low * factor, high * factor]
        times.fill_between([low, high], *edges, color=colour, linewidth=0, label=label, zorder=0)
        ratios.axhspan(1 / factor, factor, color=colour, linewidth=0, zorder=0)
    times.plot([low, high], [low, high], color="#50606f", linewidth=0.8, zorder=1)
    ratios.axhline(1, color="#50606f", linewidth=0.8, zorder=1)
    for index, (name, points) in enumerate(groups.items()):
        many = len(points) > 100
        observe: dict[str, Any] = {
            "s": 12 if many else 26,
            "marker": MARKERS[index % len(MARKERS)],
            "color": COLOURS[index % len(COLOURS)],
            "alpha": 0.6 if many else 0.9,
            "linewidths": 0,
            "zorder": 2 if many else 3,
        }
        measured = [one for one, _ in points]
        times.scatter(measured, [one for _, one in points], label=name, **observe)
        ratios.scatter(measured, [guess / truth for truth, guess in points], **observe)
    for axes in (times, ratios):
        axes.set(xscale="log", yscale="log", xlim=(low, high), xlabel="measured step time, s")
        axes.grid(color="#e3e7ec", linewidth=0.5)
        axes.set_axisbelow(True)
    times.set(ylim=(low, high), ylabel="predicted step time, s")
    ratios.set(ylim=(0.22, 2.2), ylabel="predicted ÷ measured")
    ratios.set_yticks(RATIOS, [f"{ratio:g}" for ratio in RATIOS])
    ratios.minorticks_off()
    figure.suptitle(title, fontsize=12)
    figure.legend(loc="outside right center", fontsize=8.5, frameon=False)
    save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, or as what the suffix of the path says, and close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".svg":
        figure.savefig(path, dpi=100)
    else:
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        path.write_text(_smaller(text.getvalue()), encoding="utf-8")
    pyplot.close(figure)


def _smaller(svg: str) -> str:
    """Return the same picture in fewer bytes: two decimals, one style for all marks of a source."""

    def hoisted(found: re.Match[str]) -> str:
        return f"{found['start']} {found['style']}>" + found["marks"].replace(found["style"], "")

    rounded = LONG_DECIMALS.sub(r"\1", svg)
    lines = MARKS.sub(hoisted, rounded).splitlines()
    return "\n".join(line.strip() for line in lines) + "\n"


def _by_source(observations: Sequence[Observation]) -> dict[str, list[tuple[float, float]]]:
    """Return (measured, predicted) seconds by legend entry, the largest sources first."""
    runs: dict[str, list[Observation]] = defaultdict(list)
    for seen in observations:
        if seen.measured_step_time_s and seen.predicted_step_time_s:
            runs[seen.source_group].append(seen)
    shown: dict[str, list[tuple[float, float]]] = {}
    few: list[tuple[float, float]] = []
    for name, found in sorted(runs.items(), key=lambda item: (-len(item[1]), item[0])):
        every = math.ceil(len(found) / MOST_SHOWN)
        points = [_point(seen) for seen in found if fold_of(seen.configuration, every) == 0]
        if len(found) < FEW:
            few += points
            continue
        part = f", 1 in {every} drawn" if every > 1 else ""
        shown[f"{name} ({len(found)}{part})"] = points
    if few:
        shown[f"sources of one or two ({len(few)})"] = few
    return shown


def _point(seen: Observation) -> tuple[float, float]:
    assert seen.measured_step_time_s is not None
    assert seen.predicted_step_time_s is not None
    return seen.measured_step_time_s, seen.predicted_step_time_s.value
