"""What the pages about launches have in common: their rows, their sentences, their burn-downs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from urllib.parse import quote

from ...catalog.text.money import format_money, format_price
from ...catalog.text.quantity import UNKNOWN
from ...launcher.store.accounting import attempt_usd, spent_usd
from ...launcher.store.burn_down import BurnDown
from ...launcher.store.launch_record import MARKS, Bound, LaunchRecord
from .burn_charts import launch_burn_down
from .drawing import shortened
from .page import Amount, Cell, Figure, Link
from .time_line import Span

HEADINGS = ("run", "made", "plan", "is", ">spent", ">planned", ">80 % range", ">at most")
KINDS = {
    "succeeded": "good",
    "failed": "bad",
    "lost": "bad",
    "no-capacity": "bad",
    "stopped": "cut",
    "guarded": "cut",
    "preempted": "cut",
    "cancelled": "cut",
}
"""Outcome → its colour; the word stands beside every bar."""
LEGEND = (
    ("spent", "spent"),
    ("forecast", "at the present rate"),
    ("likely", "where 80 % of such runs end"),
    ("limit", "the most it may cost"),
)


def link_to(record: LaunchRecord) -> Link:
    """Return the cell that leads to the page of a launch."""
    return Link(record.run, address_of(record))


def address_of(record: LaunchRecord) -> str:
    """Return the address of the page of a launch."""
    return f"/launch/{quote(record.run, safe='')}"


def launch_row(record: LaunchRecord, now: datetime) -> tuple[Cell, ...]:
    """Return the row of a launch under HEADINGS."""
    spent = spent_usd(record, now=now)
    return (
        link_to(record),
        time_of(record.created_at),
        Link(record.plan, f"/plan/{record.plan}"),
        record.outcome or record.state,
        Amount(f"{MARKS[record.bound]}{format_money(spent)}", spent),
        planned_of(record),
        Amount(range_of(record), record.usd_high),
        amount_of(record.usd_worst),
    )


def mark_of(records: Sequence[LaunchRecord]) -> str:
    """Return the mark of a sum of launches of which some are the most, or the least, they cost."""
    bounds: list[Bound] = [one.bound for one in records if one.bound is not None]
    if not bounds:
        return MARKS[None]
    return MARKS[bounds[0] if len(set(bounds)) == 1 else "unknown"]


def burn_figure(record: LaunchRecord, burn: BurnDown, *, is_alone: bool = False) -> Figure:
    """Return the burn-down of a launch, with the sentence that says it."""
    return Figure(
        caption="Burn-down: what is left of the planned cost"
        if is_alone
        else shortened(record.run),
        link=None if is_alone else address_of(record),
        svg=launch_burn_down(burn, record.run),
        legend=LEGEND,
        text=_burn_text(burn) if record.is_open else "",
        is_over=burn.is_over,
        empty="Nothing was planned, or nothing is paid for yet: no burn-down.",
        is_wide=is_alone,
    )


def _burn_text(burn: BurnDown) -> str:
    """Return the chart in a sentence."""
    if burn.planned_usd is None:
        return f"{format_money(burn.spent_usd)} spent; nothing was planned"
    head = f"{format_money(burn.spent_usd)} of {format_money(burn.planned_usd)} spent"
    if burn.is_over:
        return f"{head}: more than the 80 % range, so that the plan says nothing about its end"
    if burn.usd_per_hour is None:
        return f"{head}; no machine is known to run"
    rate = f"{format_price(burn.usd_per_hour)} an hour"
    found = burn.end_range_usd
    if found is None:
        return f"{head} at {rate}"
    begin, end = (burn.at(usd) for usd in found)
    if begin is None or end is None:
        return f"{head} at {rate}"
    is_one_day = begin.astimezone().date() == end.astimezone().date()
    ends = f"{end.astimezone():%H:%M}" if is_one_day else time_of(end)
    return f"{head} at {rate}: likely ends {time_of(begin)} to {ends}"


def ends_of(record: LaunchRecord, burn: BurnDown) -> tuple[str, str]:
    """Return what a launch comes to, and when."""
    if not record.is_open:
        return format_money(burn.spent_usd), record.outcome or "ended"
    if burn.end_usd is None:
        return UNKNOWN, "more is spent than was planned" if burn.is_over else "nothing was planned"
    at = burn.at(burn.end_usd)
    return format_money(burn.end_usd), UNKNOWN if at is None else f"at {time_of(at)}"


def attempt_spans(record: LaunchRecord, now: datetime) -> tuple[Span, ...]:
    """Return when machines of a launch were paid for."""
    return tuple(
        Span(
            begin=one.began_at,
            end=max(one.began_at, one.until(now)),
            kind=kind_of(one.outcome),
            title=f"{record.run}, attempt {one.number}: {one.outcome or 'open'},"
            f" {format_money(attempt_usd(record, one, now=now))}",
        )
        for one in record.attempts
        if one.began_at is not None
    )


def kind_of(outcome: str | None) -> str:
    """Return the colour of an outcome; None: it is open."""
    return "open" if outcome is None else KINDS.get(outcome, "cut")


def planned_of(record: LaunchRecord) -> Amount:
    """Return the cell of what a launch was planned with."""
    return amount_of(record.usd_expected)


def amount_of(usd: Decimal | None) -> Amount:
    """Return the cell of dollars; None is unknown."""
    return Amount(UNKNOWN if usd is None else format_money(usd), usd)


def range_of(record: LaunchRecord) -> str:
    """Return the planned 80 % interval."""
    low, high = record.usd_low, record.usd_high
    return (
        UNKNOWN if low is None or high is None else f"{format_money(low)} to {format_money(high)}"
    )


def time_of(moment: datetime, *, seconds: bool = False) -> str:
    """Return a time of this machine's zone."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")
