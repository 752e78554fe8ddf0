"""What the pages about launches show, as the store knows them: no cloud is asked.

An open launch counts from its last known state until now, as in `gpuplan history`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from ... import api
from ...catalog.text.money import format_money, format_price
from ...catalog.text.quantity import UNKNOWN, format_duration
from ...launcher.store.accounting import attempt_usd, spent_usd
from ...launcher.store.burn_down import BurnDown
from ...launcher.store.launch_record import BOUNDS, MARKS, Attempt, LaunchRecord
from .launch_rows import (
    HEADINGS,
    address_of,
    attempt_spans,
    burn_figure,
    ends_of,
    launch_row,
    link_to,
    mark_of,
    planned_of,
    range_of,
    time_of,
)
from .page import Amount, Block, Cell, Figure, Lines, Link, Rows, Tile, Tiles, View
from .time_line import SpanRow, time_line

MOST_LAUNCHES = 50
MOST_DRAWN = 6
"""Burn-downs on the page of all launches; each launch has its own page."""
MOST_ROWS = 20
"""Of the time line."""
RECENT = timedelta(days=30)
HOUR = timedelta(hours=1)
ZERO = Decimal(0)
FORECAST = (
    "The forecast is the plan's cost at the present rate: the store has no progress of a run."
)


def launches(now: datetime) -> View:
    """Return what each launch has spent against what was planned, and what ran when."""
    context = api.launches.context(now=lambda: now)
    records = api.launches.history(context)
    still = [one for one in records if one.is_open]
    burns = {one.run: api.launches.burn_down(context, one) for one in still}
    unread = tuple(
        f"{run}: its record in the store cannot be read; it may cost money."
        for run in context.ledger.unreadable()
    )
    return View(
        title="Launches",
        subtitle=f"{len(still)} open of {len(records)}",
        note=_counted(now),
        commands=("gpuplan status", "gpuplan history"),
        refreshes=True,
        blocks=(
            *([_tiles(records, list(burns.values()), now)] if records else []),
            *(burn_figure(one, burns[one.run]) for one in _drawn(still, burns)),
            _open_rows(still, burns),
            *([_recent(records, now)] if records else []),
            Rows(
                caption=f"All launches, newest first, at most {MOST_LAUNCHES}",
                headings=HEADINGS,
                rows=tuple(launch_row(one, now) for one in records[:MOST_LAUNCHES]),
                empty="No launch was made yet.",
            ),
            Lines(caption="Left out", lines=unread),
        ),
    )


def launch(run: str, now: datetime) -> View:
    """Return one launch: its burn-down, its attempts, and what happened to it.

    Raises:
        UsageError: The store has no such launch.
    """
    context = api.launches.context(now=lambda: now)
    record = context.ledger.get(run)
    burn = api.launches.burn_down(context, record)
    name = shlex.quote(run)
    commands = [f"gpuplan history {name}"]
    if record.is_open:
        commands += [f"gpuplan {verb} {name}" for verb in ("status", "logs", "stop")]
    word = record.outcome or record.state
    events = [f"{time_of(at, seconds=True)}  {what}" for at, what in context.ledger.events(run)]
    return View(
        title=run,
        subtitle=" · ".join([record.title, f"project {record.project}", f"owner {record.owner}"]),
        note=_counted(now)
        if record.is_open
        else f"{word}{f': {record.why}' if record.why else ''}",
        links=(Link(f"plan {record.plan}", f"/plan/{record.plan}"),),
        commands=tuple(commands),
        refreshes=record.is_open,
        blocks=(
            _launch_tiles(record, burn),
            burn_figure(record, burn, is_alone=True),
            Figure(
                caption="Attempts: when machines were paid for",
                svg=time_line(
                    [_attempt_span_row(record, one, now) for one in record.attempts],
                    now=now if record.is_open else None,
                    label="Attempts; the table below has the times.",
                ),
                empty="No machine was paid for.",
            ),
            Rows(
                caption="Attempts",
                headings=(">attempt", "where", "how", "is", "began", "ended", ">spent"),
                rows=tuple(_attempt_row(record, one, now) for one in record.attempts),
                empty="No machine was asked for.",
            ),
            Lines(caption="What happened", lines=tuple(events)),
            Lines(caption="Results", lines=(record.results,)),
        ),
    )


def launches_of(plan_id: str, now: datetime) -> Rows:
    """Return the launches of a plan as a table."""
    context = api.launches.context(now=lambda: now)
    return Rows(
        caption="Launches of this plan",
        headings=HEADINGS,
        rows=tuple(launch_row(one, now) for one in context.ledger.of_plans([plan_id])),
        empty="It was not launched yet.",
    )


def _counted(now: datetime) -> str:
    return (
        f"Counted until {now.astimezone():%Y-%m-%d %H:%M:%S %Z} from the last known state:"
        f" no cloud was asked. {FORECAST}"
    )


def _tiles(records: Sequence[LaunchRecord], burns: list[BurnDown], now: datetime) -> Tiles:
    spent = sum((one.spent_usd for one in burns), ZERO)
    hourly = sum((one.usd_per_hour for one in burns if one.usd_per_hour is not None), ZERO)
    whole = sum((spent_usd(one, now=now) for one in records), ZERO)
    unplanned = sum(one.end_usd is None for one in burns)
    ends = sum((one.end_usd or one.spent_usd for one in burns), ZERO)
    return Tiles(
        tiles=(
            Tile("Costs now, per hour", format_price(hourly), f"{len(burns)} open"),
            Tile("Spent by open launches", format_money(spent), ""),
            Tile(
                "Open launches will come to",
                f"≥ {format_money(ends)}" if unplanned else format_money(ends),
                f"{unplanned} of them unknown" if unplanned else "as planned",
            ),
            Tile(
                "Spent by all launches",
                f"{mark_of(records)}{format_money(whole)}",
                f"{len(records):,} launches",
            ),
        )
    )


def _launch_tiles(record: LaunchRecord, burn: BurnDown) -> Tiles:
    planned = UNKNOWN if burn.planned_usd is None else format_money(burn.planned_usd)
    rate = "none runs" if burn.usd_per_hour is None else f"{format_price(burn.usd_per_hour)} now"
    worst = UNKNOWN if burn.worst_usd is None else format_money(burn.worst_usd)
    bound = BOUNDS[record.bound].strip()
    rate = f"{bound}, {rate}" if bound else rate
    return Tiles(
        tiles=(
            Tile("Spent", format_money(burn.spent_usd), rate),
            Tile("Planned", planned, f"80 % range {range_of(record)}"),
            Tile("Will come to", *ends_of(record, burn)),
            Tile("At most", worst, "worst case, kept before it began"),
        )
    )


def _drawn(still: Sequence[LaunchRecord], burns: dict[str, BurnDown]) -> list[LaunchRecord]:
    """Return the open launches whose burn-down has begun."""
    return [one for one in still if burns[one.run].has_begun][:MOST_DRAWN]


def _open_rows(still: Sequence[LaunchRecord], burns: dict[str, BurnDown]) -> Rows:
    rows = []
    for one in still:
        burn = burns[one.run]
        usd, when = ends_of(one, burn)
        last = one.last
        rows.append(
            (
                link_to(one),
                one.state,
                (None if last is None else last.infra) or UNKNOWN,
                Amount(format_price(burn.usd_per_hour), burn.usd_per_hour),
                Amount(format_money(burn.spent_usd), burn.spent_usd),
                planned_of(one),
                Amount(usd, burn.end_usd),
                when,
            )
        )
    return Rows(
        caption="Open launches",
        headings=("run", "is", "where", ">per hour", ">spent", ">planned", ">will come to", "when"),
        rows=tuple(rows),
        empty="Nothing is open: no launch costs money.",
    )


def _recent(records: Sequence[LaunchRecord], now: datetime) -> Block:
    """Return the time line of what ran of late."""
    shown = [one for one in records if one.is_open or one.created_at > now - RECENT][:MOST_ROWS]
    rows = [
        SpanRow(
            name=one.run,
            link=address_of(one),
            spans=attempt_spans(one, now),
            text=f"{one.outcome or one.state}, {format_money(spent_usd(one, now=now))}",
        )
        for one in shown
        if any(attempt.began_at for attempt in one.attempts)
    ]
    return Figure(
        caption=f"When machines were paid for, in {RECENT.days} days; the newest {MOST_ROWS}",
        svg=time_line(rows, now=now, label="Time line of launches; the table below has the sums."),
        legend=(("open", "open"), ("good", "succeeded"), ("cut", "stopped"), ("bad", "failed")),
        empty=f"No machine was paid for in {RECENT.days} days.",
    )


def _attempt_span_row(record: LaunchRecord, one: Attempt, now: datetime) -> SpanRow:
    alone = record.model_copy(update={"attempts": (one,)})
    return SpanRow(
        name=f"attempt {one.number}",
        link=None,
        spans=attempt_spans(alone, now),
        text=f"{one.outcome or 'open'}, {format_money(attempt_usd(record, one, now=now))}",
    )


def _attempt_row(record: LaunchRecord, one: Attempt, now: datetime) -> tuple[Cell, ...]:
    usd = attempt_usd(record, one, now=now)
    began, ended = one.began_at, one.unknown_from or one.ended_at
    length = "" if began is None else f" ({format_duration(((ended or now) - began) / HOUR)})"
    return (
        Amount(str(one.number), one.number),
        one.infra or UNKNOWN,
        "spot" if one.spot else "on-demand",
        one.outcome or "open",
        "not yet" if began is None else time_of(began),
        f"{'not yet' if ended is None else time_of(ended)}{length}",
        Amount(f"{MARKS[one.bound]}{format_money(usd)}", usd),
    )
