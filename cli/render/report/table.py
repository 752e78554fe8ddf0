"""A budget report for a terminal: the total, the options, the dearest experiments, the limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ....catalog.text.amounts import format_given_share
from ....catalog.text.quantity import format_duration
from ....planner.budget.report.limit_rows import LimitCheck
from ....planner.budget.report.report import BudgetReport
from ..text.columns import Align, aligned, column_widths, wrapped
from . import words
from .figures import about_usd, as_text, clean, count, least, share, usd

SCREEN_LINES = 24
"""What the answer fits on."""
WIDEST = 100
MOST_EXPERIMENTS = 6
MOST_MONTHS = 3
LONGEST_NAME = 32
NO_CONTINGENCY = "no contingency is added"


def render_table(report: BudgetReport, *, width: int) -> list[Text]:
    """Return the report in at most 24 lines of at most `width` columns, 100 at most."""
    width = min(width, WIDEST)
    head = [Text(_cut(words.headline(report), width), style="bold")]
    head += [Text(_cut(words.subtitle(report), width))]
    parts = [head, [*_money(report, width)], [*_options(report, width)]]
    end = [*_limits(report, width), *_last(report, width)]
    room = SCREEN_LINES - sum(len(part) + 1 for part in parts) - len(end)
    parts.append([*_experiments(report, width, max(1, min(MOST_EXPERIMENTS, room - 3)))])
    lines: list[Text] = []
    for part in parts:
        lines += [*part, Text()]
    return [*lines, *end][:SCREEN_LINES]


def _money(report: BudgetReport, width: int) -> Iterator[Text]:
    total = report.total
    span = f"{about_usd(total.p10_usd)} to {about_usd(total.p90_usd)}"
    added = report.contingency_usd
    contingency = (
        f"with {format_given_share(report.contingency_share)} contingency"
        if added
        else NO_CONTINGENCY
    )
    at_least = "at least " if report.is_lower_bound else ""
    figures = [
        ("budget", at_least + usd(report.budget_usd), contingency),
        ("planned", at_least + usd(total.usd), f"80 % range {span}"),
        ("runs", f"{count(report.accelerator_hours)} h", "of accelerators"),
    ]
    for label, value, note in figures:
        yield Text(_cut(f"{label:<9}{value:>16}  {note}", width))
    for sentence in report.beyond:
        for line in wrapped(clean(sentence), width):
            yield Text(line, style="red")
    if report.so_far is not None:
        yield Text(_cut(clean(report.so_far), width))
    if report.capacity is not None and report.capacity.have:
        yield Text(_cut(clean(report.capacity.headline), width))
    if report.moved is not None:
        yield Text(_cut(f"since {report.moved.before.name}: {clean(report.moved.headline)}", width))


def _options(report: BudgetReport, width: int) -> Iterator[Text]:
    rows = [["option", "cost", "80 % range", "ends", "takes", ""]]
    for one in report.options:
        span = f"{about_usd(one.total.p10_usd)} to {about_usd(one.total.p90_usd)}"
        mark = "planned" if one.is_planned else ""
        took = format_duration(24 * one.days)
        cost = usd(least(one.total.usd, one.total.lower_bound))
        rows.append([one.name, cost, span, str(one.ends), took, mark])
    yield from _aligned(rows, ("left", "right", "right", "right", "right", "left"), width)


def _experiments(report: BudgetReport, width: int, most: int) -> Iterator[Text]:
    facts = {row.name: row for row in report.experiments}
    rows = [["dearest experiments", "cost", "share", "runs", "rented for a run"]]
    for one in report.by_experiment[:most]:
        row = facts.get(one.name)
        rows.append(
            [
                _cut(clean(one.name), LONGEST_NAME),
                usd(least(one.usd, one.lower_bound)),
                share(one.share),
                "" if row is None else count(row.runs),
                _fixed_lines(report) if row is None else clean(row.rent),
            ]
        )
    left = report.by_experiment[most:]
    if left:
        rest = least(sum((one.usd for one in left), Decimal(0)), any(o.lower_bound for o in left))
        part = share(sum(one.share for one in left))
        rows.append([f"{len(left)} more", usd(rest), part, "", ""])
    yield from _aligned(rows, ("left", "right", "right", "right", "left"), width)


def _fixed_lines(report: BudgetReport) -> str:
    """Return what is paid for no experiment: "of no experiment: labels (6 months), disks"."""
    months: dict[str, set[str]] = {}
    for line in (*report.entries, *report.open_lines):
        if line.experiment is None:
            months.setdefault(clean(line.name), set()).add(str(line.month))
    named = [
        f"{name} ({len(found)} months)" if len(found) > 1 else name
        for name, found in months.items()
    ]
    return f"of no experiment: {', '.join(named)}" if named else ""


def _limits(report: BudgetReport, width: int) -> Iterator[Text]:
    over = [one for one in report.limits if one.is_over]
    if not over:
        verdict = words.verdict(report)
        if verdict:
            style = "red" if words.is_over(report) else "green"
            yield Text(_cut(verdict, width), style=style)
        return
    over.sort(key=lambda one: one.limit_usd - one.highest_usd)
    for one in over[:MOST_MONTHS]:
        yield Text(_cut(_exceeded(one), width), style="red")
    if len(over) > MOST_MONTHS:
        yield Text(f"{len(over) - MOST_MONTHS} more limits are exceeded", style="red")


def _exceeded(one: LimitCheck) -> str:
    name = _cut(clean(one.name), LONGEST_NAME)
    spent = one.spent_usd is not None and one.spent_usd > one.limit_usd
    has_cost = " has cost" if spent else ""
    return f"over the limit: {name}{has_cost} {usd(one.highest_usd)}, at most {usd(one.limit_usd)}"


def _last(report: BudgetReport, width: int) -> Iterator[Text]:
    prices = report.price_dates
    dates = as_text(report.snapshot_date, "text") if prices is None else prices.text()
    missing = "; ".join(clean(one).rstrip(".") for one in report.not_included)
    text = f"Prices of {dates}. Not included: {missing}." if missing else f"Prices of {dates}."
    first, *rest = wrapped(text, width)
    second = _cut(" ".join(rest), width)
    yield from (Text(line, style="dim") for line in (first, second) if line)


def _aligned(rows: Sequence[list[str]], aligns: Sequence[Align], width: int) -> Iterator[Text]:
    widths = column_widths(rows)
    for index, row in enumerate(rows):
        style = "bold" if not index else ""
        yield Text(_cut(aligned(row, widths, aligns), width), style=style)


def _cut(text: str, width: int) -> str:
    """Return a text of at most so many terminal cells; "…" ends one that was longer."""
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1).rstrip()}…"
