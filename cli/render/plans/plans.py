"""The stored estimates as a list: one line for each estimate, then its first plans."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from ....catalog.text.quantity import UNKNOWN
from ....planner.plan.answer.estimate import Estimate
from ....planner.plan.plan import Plan
from ..text.columns import Align, aligned, column_widths, packed, total_width
from ..text.grid import Column, Grid, markdown_table
from ..text.wording import describe_cost, per_million
from .csv import ASKED_COLUMNS, asked_cells, csv_cell

NONE_KEPT = "No estimate is kept yet. Next: gpuplan estimate model.py --tokens 10B"
MARKDOWN_COLUMNS = [Column(name) for name in ("plan", "rent", "on", "time and cost", "layout")]
MARGIN = "  "
UNDER_DEVICES = 14
ALIGNS: tuple[Align, ...] = ("left", "left", "left")


def render_kept(estimates: Sequence[Estimate], *, top: int, width: int) -> list[Text]:
    """Return the estimates as lines, each with its first `top` plans."""
    if not estimates:
        return [Text(NONE_KEPT)]
    lines: list[Text] = []
    for estimate in estimates:
        lines += [*_heading(estimate, width), *_plans(estimate, top, width), Text()]
    return lines[:-1]


def render_kept_csv(estimates: Sequence[Estimate]) -> str:
    """Return one line a kept plan: when and of what it was asked, then the columns of `estimate`.

    The work, the limits and the params are in words, as in the first lines of an answer.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*ASKED_COLUMNS, *Plan.columns()])
    for estimate in estimates:
        asked = asked_cells(estimate)
        for row in estimate.rows():
            writer.writerow([*asked, *(csv_cell(value) for value in row.values())])
    return stream.getvalue()


def render_kept_markdown(estimates: Sequence[Estimate], *, top: int) -> str:
    """Return the estimates as Markdown: a heading for each, and a table of its first plans."""
    if not estimates:
        return f"{NONE_KEPT}\n"
    lines: list[str] = []
    for estimate in estimates:
        asked = datetime.fromisoformat(estimate.generated_at)
        lines += [f"### {asked:%Y-%m-%d %H:%M} · {' · '.join(estimate.asked_text)}", ""]
        lines += [" · ".join(estimate.limits_text), ""]
        rows = [
            [f"`{p.id}`", p.place, p.devices, _price(p), p.string] for p in estimate.plans[:top]
        ]
        if rows:
            lines += [markdown_table(Grid(MARKDOWN_COLUMNS, rows))]
        more = len(estimate.plans) - len(rows)
        lines += [f"and {more:,} more" if rows else "No plan is feasible.", ""] if more else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _heading(estimate: Estimate, width: int) -> Iterator[Text]:
    asked = datetime.fromisoformat(estimate.generated_at)
    items = [
        f"{asked:%Y-%m-%d %H:%M}",
        *estimate.asked_text,
        *estimate.limits_text,
        f"{estimate.feasible:,} plans fit",
    ]
    for line in packed(items, width=width, indent=0):
        yield Text(line, style="bold")


def _plans(estimate: Estimate, top: int, width: int) -> Iterator[Text]:
    plans = estimate.plans[:top]
    if not plans:
        return
    rows: list[tuple[str, ...]] = [(plan.id, plan.devices, _price(plan)) for plan in plans]
    is_narrow = len(MARGIN) + total_width(column_widths(rows)) > width
    if is_narrow:
        rows = [row[:2] for row in rows]
    widths = column_widths(rows)
    for plan, row in zip(plans, rows, strict=True):
        yield Text(f"{MARGIN}{aligned(row, widths, ALIGNS[: len(row)])}")
        if is_narrow:
            yield Text(f"{' ' * UNDER_DEVICES}{_price(plan)}")
        for line in packed([plan.place, plan.string], width=width, indent=UNDER_DEVICES):
            yield Text(line, style="dim")
    if len(estimate.plans) > len(plans):
        yield Text(f"  and {len(estimate.plans) - len(plans):,} more", style="dim")


def _price(plan: Plan) -> str:
    if plan.run is not None:
        return f"{plan.hours_text}, {describe_cost(plan)}"
    what, usd = per_million(plan)
    return "price unknown" if usd == UNKNOWN else f"{usd} per 1M {what}"
