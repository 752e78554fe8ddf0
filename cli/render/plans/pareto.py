"""Cost against time as a picture of text, and scaling over nodes as bars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ....api.pareto import Frontier
from ....catalog.names import shown_instance
from ....catalog.text.money import format_money
from ....catalog.text.quantity import format_duration, format_share
from ....catalog.units import HOURS_PER_DAY
from ....planner.plan.answer.estimate import Estimate
from ....planner.plan.plan import Plan
from ..text.columns import packed

WIDEST = 100
MOST_LINES = 24
ROWS = 11
MARGIN = 9
"""Columns left of the picture, for amounts of money."""
BAR = 30
LEAST_BAR = 4
SHARE = len(" 100 %")
"""Columns right of a bar."""
OTHER, BEST, RECOMMENDED = "·", "●", "★"
LEGENDS = (
    f"cost against time, both logarithmic:   {BEST} none is both cheaper and faster"
    f"   {RECOMMENDED} recommended   {OTHER} others",
    f"cost against time, both logarithmic:   {BEST} best   {RECOMMENDED} recommended"
    f"   {OTHER} others",
    f"cost against time:   {BEST} best   {RECOMMENDED} recommended",
)
"""Above the picture: the first that a terminal has room for."""


def render_pareto(found: Frontier, answer: Estimate, *, width: int) -> list[str]:
    """Return at most 24 lines of at most 100 columns: cost against time, then scaling over nodes.

    Args:
        found: The plans.
        answer: The estimate, for its question and the recommended plan.
        width: Columns of the terminal.
    """
    width = min(width, WIDEST)
    if not found.plans:
        without = "No plan has a known price: there is no cost to draw against time."
        empty = without if answer.plans else "No plan is feasible."
        return [_cut(" · ".join(answer.asked_text), width), _cut(empty, width)]
    chosen = None if answer.recommended is None else answer.recommended.id
    lines = [next((one for one in LEGENDS if len(one) <= width), LEGENDS[-1])]
    lines += _picture(found, chosen, width)
    if found.scaling:
        lines += _scaling(found.scaling, width)
    asked = packed(answer.asked_text, width=width, indent=0)
    if len(asked) + len(lines) > MOST_LINES:
        asked = [" · ".join(answer.asked_text)]
    return [_cut(line, width) for line in [*asked, *lines]]


def _picture(found: Frontier, chosen: str | None, width: int) -> Iterator[str]:
    columns = width - MARGIN - 1
    hours, usd = (
        _Axis.of([_hours(p) for p in found.plans]),
        _Axis.of([_usd(p) for p in found.plans]),
    )
    grid = [[" "] * columns for _ in range(ROWS)]

    def place(plan: Plan) -> tuple[int, int]:
        return (
            ROWS - 1 - round(usd.share(_usd(plan)) * (ROWS - 1)),
            round(hours.share(_hours(plan)) * (columns - 1)),
        )

    for plan in found.plans:
        row, column = place(plan)
        grid[row][column] = OTHER
    named = [plan for plan in found.plans if plan.id == chosen]
    best = [plan for plan in found.best if plan.id != chosen]
    for plan in (*best, *named):
        row, column = place(plan)
        grid[row][column] = RECOMMENDED if plan.id == chosen else BEST
    for plan in (*named, *best):
        _write_label(grid, plan.devices, *place(plan))
    for row, cells in enumerate(grid):
        label = ""
        if row in (0, ROWS // 2, ROWS - 1):
            label = format_money(float(f"{usd.at(1 - row / (ROWS - 1)):.3g}"))
        yield f"{label:>{MARGIN - 1}} │{''.join(cells).rstrip()}"
    yield f"{'':{MARGIN}}└{'─' * columns}"
    ends = [_duration(hours.at(share)) for share in (0.0, 0.5, 1.0)]
    yield (
        f"{'':{MARGIN}} {ends[0]:<{columns // 2 - 4}}{ends[1]}".ljust(width - len(ends[2]))
        + ends[2]
    )


def _write_label(grid: list[list[str]], label: str, row: int, column: int) -> None:
    """Write a label beside its point, right of it or else left, where nothing stands yet."""
    for start in (column + 2, column - 1 - len(label)):
        around = range(start - 1, start + len(label) + 1)
        if start < 0 or start + len(label) > len(grid[row]):
            continue
        if all(grid[row][i] == " " for i in around if 0 <= i < len(grid[row]) and i != column):
            grid[row][start : start + len(label)] = label
            return


def _scaling(plans: Sequence[Plan], width: int) -> Iterator[str]:
    offer = plans[0].offer
    name = shown_instance(offer.provider, offer.instance_type)
    yield f"nodes of {offer.provider} {name}: time, cost, and the rate a node keeps"
    first = plans[0].samples_per_s / plans[0].nodes
    widths = [
        max(len(text(plan)) for plan in plans)
        for text in (lambda p: p.devices, lambda p: p.hours_text, lambda p: p.cost_text)
    ]
    longest = min(BAR, max(LEAST_BAR, width - len("1234") - sum(2 + w for w in widths) - 2 - SHARE))
    for plan in plans:
        share = plan.samples_per_s / plan.nodes / first
        bar = "█" * max(1, round(min(share, 1.0) * longest))
        yield (
            f"{plan.nodes:>4}  {plan.devices:>{widths[0]}}  {plan.hours_text:>{widths[1]}}"
            f"  {plan.cost_text:>{widths[2]}}  {bar:<{longest}} {format_share(share)}"
        )


class _Axis:
    """A logarithmic axis from the least to the most of some values."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = math.log(low), math.log(high)

    @classmethod
    def of(cls, values: Sequence[float]) -> _Axis:
        """Return the axis of values above zero; where all are alike it is 10 % wide."""
        low, high = max(min(values), 1e-6), max(values)
        return cls(low, max(high, low * 1.1))

    def share(self, value: float) -> float:
        """Return where a value is, from 0 to 1."""
        return (math.log(max(value, 1e-6)) - self.low) / (self.high - self.low)

    def at(self, share: float) -> float:
        """Return the value at a place from 0 to 1."""
        return math.exp(self.low + share * (self.high - self.low))


def _duration(hours: float) -> str:
    """Return a length of time; a thousand days and more as whole ones, without an exponent."""
    days = hours / HOURS_PER_DAY
    return format_duration(hours) if days < 1000 else f"{days:,.0f} days"


def _hours(plan: Plan) -> float:
    assert plan.whole_job is not None
    return plan.whole_job.hours


def _usd(plan: Plan) -> float:
    return plan.likely_usd or 0.0


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 1]}…"
