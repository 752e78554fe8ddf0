"""The ways of paying for recommended machines, side by side, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from ....catalog.text.money import format_money, format_money_range, format_price
from ....catalog.text.quantity import UNKNOWN, format_duration
from ....planner.plan.answer.estimate import Estimate
from ....planner.plan.plan import BuyingWay, DeadlineWay, Plan
from ..text.columns import Align, aligned, column_widths, packed
from ..text.wording import chance_text

HEADINGS = ("paid", "$/h a node", "this job", "whole term", "pays above", "dearer to rent from")
ALIGN: tuple[Align, ...] = ("left", "right", "right", "right", "right", "right")
NOT_SO = "–"  # noqa: RUF001
DEADLINE_WAYS = {
    "spot": "on spot",
    "on-demand": "on demand",
    "spot-then-on-demand": "on spot, then on demand",
}
EXPLAINED = (
    "this job: its share of a term, a capacity block whole. pays above: share of all hours in use"
    " from which it costs less than on demand; dearer to rent from: month on demand at full use"
    " (docs/pricebook.md)"
)


def render_ways(answer: Estimate, *, width: int) -> Iterator[Text]:
    """Yield one table for each plan whose ways of paying were asked for."""
    plans = {plan.id: plan for plan in answer.plans}
    for found in answer.ways_to_pay:
        plan = plans.get(found.plan_id)
        if plan is None:
            continue
        yield Text()
        yield Text(f"Ways to pay for {plan.place} ({plan.devices})", style="bold")
        rows = [HEADINGS, *(_cells(way, plan) for way in found.ways)]
        widths = column_widths(rows)
        yield from (Text(f"  {aligned(row, widths, ALIGN)}".rstrip()) for row in rows)
        yield from (Text(f"  {line}") for line in deadline_lines(plan))
    if answer.ways_to_pay:
        for line in packed(EXPLAINED.split(), width=width, indent=0, separator=" "):
            yield Text(line, style="dim")


def deadline_lines(plan: Plan) -> list[str]:
    """Return what a plan with a deadline takes, costs and risks in each way, a line each.

    Empty where it has no deadline or no spot machines.
    """
    rows = [
        (
            DEADLINE_WAYS[one.way],
            f"{format_duration(one.hours)} expected",
            UNKNOWN if one.usd is None else _usd_and_ends(one),
            f"{chance_text(one.deadline_probability)} sure to meet the deadline",
        )
        for one in plan.deadline_ways
    ]
    widths = column_widths(rows)
    return [aligned(row, widths, ("left", "right", "right", "left")).rstrip() for row in rows]


def _usd_and_ends(way: DeadlineWay) -> str:
    expected = format_money(way.usd)
    if way.usd_low is None or way.usd_high is None:
        return expected
    ends = format_money_range(float(way.usd_low), float(way.usd or 0), float(way.usd_high))
    return f"{expected} ({ends})"


def _cells(way: BuyingWay, plan: Plan) -> tuple[str, ...]:
    by_the_hour = way.way in ("on-demand", "spot")
    no_such = NOT_SO if by_the_hour else UNKNOWN
    is_known = way.usd_per_hour is not None
    late = NOT_SO if is_known else UNKNOWN
    return (
        _name(way),
        format_price(way.usd_per_hour),
        UNKNOWN if way.job_usd is None and plan.job is not None else format_money(way.job_usd),
        no_such if way.whole_usd is None else format_money(way.whole_usd),
        (no_such if not is_known else NOT_SO)
        if way.break_even_share is None
        else f"{way.break_even_share * 100:.0f} % use",
        late if way.break_even_month is None else f"month {way.break_even_month}",
    )


def _name(way: BuyingWay) -> str:
    if way.way == "owned":
        return f"bought: {way.name}, {way.term_years:g} years"
    if way.term_years is None:
        return {"on-demand": "on demand", "block": "capacity block"}.get(way.way, way.way)
    return f"{way.way}, {way.term_years:g} year{'' if way.term_years == 1 else 's'}"
