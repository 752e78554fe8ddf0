"""A sweep over params: one line a row with the plan to rent, as text, Markdown or CSV."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from ....catalog.text.quantity import UNKNOWN, format_count, format_part, format_seconds
from ....planner.plan.answer.param_sweep import Sweep, SweepRow
from ....planner.plan.plan import Plan
from ...terminal.output import Screen
from ..text.columns import packed, wrapped
from ..text.grid import Column, Grid, markdown_table, text_table
from ..text.wording import describe_use, per_million
from .csv import csv_text
from .estimate import BANDWIDTH_MARK, NOT_COUNTED
from .plan_table import USE
from .short_cells import short_place

WIDE = 140
"""Terminal cells from which what is rented stands in full, with its devices beside it."""
NO_PLAN = "no plan"
NOT_TRACED = "failed"
OWN_BATCHES = "batches are those of a rule, one for each model: --global-batch sets one for all"


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """One column of the plans, with what it says of one."""

    column: Column
    of: Callable[[Plan], str]


def render_sweep(answer: Sweep, screen: Screen) -> str:
    """Return what was asked, one line a row, and below it why rows have no plan."""
    asked = [
        *packed(answer.asked_text, width=screen.width, indent=0),
        *packed(answer.limits_text, width=screen.width, indent=0),
    ]
    below = [line for text in _below(answer) for line in wrapped(text, screen.width)]
    table = text_table(_grid(answer, is_short=screen.width < WIDE), screen)
    return "".join(f"{line}\n" for line in [*asked, ""]) + table + "".join(f"{x}\n" for x in below)


def render_sweep_markdown(answer: Sweep) -> str:
    """Return the sweep as Markdown: the question, a table, why rows have no plan."""
    lines = [f"### {' · '.join(answer.asked_text)}", ""]
    lines += [" · ".join(answer.limits_text), ""] if answer.limits_text else []
    below = [f"- {text}" for text in _below(answer)]
    return "\n".join([*lines, markdown_table(_grid(answer)).rstrip("\n"), "", *below]) + "\n"


def render_sweep_csv(answer: Sweep) -> str:
    """Return one line a row, a column for every value of the JSON; an unknown one is empty."""
    return csv_text(answer.columns(), answer.rows())


def _grid(answer: Sweep, *, is_short: bool = False) -> Grid:
    plans = [row.plan for row in answer.sweep if row.plan is not None]
    cells = _cells(plans, short_place if is_short else attrgetter("place"))
    columns = [Column(name, right=True, key=True) for name in answer.values]
    columns.append(Column("parameters", right=True))
    rows = []
    for row in answer.sweep:
        work = row.workload
        head = [_value_text(row.params[name]) for name in answer.values]
        head.append(UNKNOWN if work is None else format_count(work.parameters))
        rows.append([*head, *_plan_cells(row, cells)])
    return Grid([*columns, *(cell.column for cell in cells)], rows)


def _plan_cells(row: SweepRow, cells: list[_Cell]) -> list[str]:
    if row.plan is not None:
        return [cell.of(row.plan) for cell in cells]
    return [NOT_TRACED if row.workload is None else NO_PLAN, *[""] * (len(cells) - 1)]


def _cells(plans: list[Plan], place: Callable[[Plan], str]) -> list[_Cell]:
    found = [
        _Cell(column=Column("rent", shrink=True), of=place),
        _Cell(column=Column("on", from_width=WIDE), of=lambda plan: plan.devices),
    ]
    if any(plan.amount_text for plan in plans):
        found.append(_right("trains", lambda plan: plan.amount_text or UNKNOWN))
    if any(plan.run for plan in plans):
        found.append(_right("time", lambda plan: plan.hours_text))
        found.append(_right("cost", lambda plan: plan.cost_text))
    elif plans:
        what, _ = per_million(plans[0])
        found.append(_right("rate", lambda plan: plan.rate_text))
        found.append(_right(f"$ per 1M {what}", lambda plan: per_million(plan)[1]))
    if len({plan.global_batch for plan in plans}) > 1:
        found.append(_right("batch", lambda plan: f"{plan.global_batch:,}", 100))
    found.append(_right("step", lambda plan: format_seconds(plan.step_time_s.value), 90))
    found.append(_right(USE, describe_use, 100))
    found.append(_right("p(oom)", _p_oom, 80))
    found.append(_Cell(column=Column("plan", from_width=110), of=lambda plan: plan.id))
    return found


def _right(heading: str, of: Callable[[Plan], str], from_width: int = 0) -> _Cell:
    return _Cell(column=Column(heading, right=True, from_width=from_width), of=of)


def _p_oom(plan: Plan) -> str:
    return UNKNOWN if plan.p_oom is None else format_part(plan.p_oom)


def _value_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _below(answer: Sweep) -> Iterator[str]:
    """Yield why rows have no plan, and what the numbers leave out."""
    for row in answer.sweep:
        if row.why_not is not None:
            named = ", ".join(f"{name}={_value_text(value)}" for name, value in row.params.items())
            yield f"{named}: {' '.join(row.why_not.split())}"
    plans = [row.plan for row in answer.sweep if row.plan is not None]
    ruled = [row.global_batch for row in answer.sweep if row.global_batch is not None]
    if len({one.samples for one in ruled if one.source == "rule"}) > 1:
        yield OWN_BATCHES
    if any(plan.is_bandwidth_bound for plan in plans):
        yield BANDWIDTH_MARK
    if any(plan.run for plan in plans):
        yield NOT_COUNTED
