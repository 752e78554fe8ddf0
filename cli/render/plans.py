"""The stored estimates as a list: one line for each estimate, then its first plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from ...catalog.text.quantity import UNKNOWN
from ...planner.plan.plan import Estimate, Plan
from .text.columns import Align, aligned, column_widths, packed
from .text.wording import (
    describe_cost,
    per_million,
)

ALIGNS: tuple[Align, ...] = ("left", "left", "left")


def render_kept(estimates: Sequence[Estimate], *, top: int, width: int) -> list[Text]:
    """Return the estimates as lines, each with its first `top` plans."""
    if not estimates:
        return [Text("No estimate is kept yet. Next: gpuplan estimate model.py --tokens 10B")]
    lines: list[Text] = []
    for estimate in estimates:
        lines += [*_heading(estimate, width), *_plans(estimate, top, width), Text()]
    return lines[:-1]


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
    rows = [(plan.id, plan.devices, _price(plan)) for plan in plans]
    widths = column_widths(rows)
    for plan, row in zip(plans, rows, strict=True):
        yield Text(f"  {aligned(row, widths, ALIGNS)}")
        for line in packed([plan.place, plan.string], width=width, indent=14):
            yield Text(line, style="dim")
    if len(estimate.plans) > len(plans):
        yield Text(f"  and {len(estimate.plans) - len(plans):,} more", style="dim")


def _price(plan: Plan) -> str:
    if plan.run is not None:
        return f"{plan.hours_text}, {describe_cost(plan)}"
    what, usd = per_million(plan)
    return "price unknown" if usd == UNKNOWN else f"{usd} per 1M {what}"
