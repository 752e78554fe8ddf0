"""Launches as a table, in full, as JSON and as CSV: attempts, hours and dollars."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from rich.text import Text

from ....catalog.text.quantity import UNKNOWN
from ....launcher.lifecycle.observing.observe import Finding
from ....launcher.store.accounting import attempt_usd, closing_line, node_hours, spent_usd
from ....launcher.store.launch_record import MARKS, Attempt, LaunchRecord
from ....launcher.store.launch_sums import LaunchSum
from ....launcher.store.unattended import unattended_line
from ..text.columns import Align, aligned, column_widths
from .launch_sums import whole_of

SAYINGS: dict[Finding, str] = {
    "nothing": "ended",
    "starting": "machines are being started",
    "waiting": "waits or sets up",
    "training": "trains",
    "job-ended": "ended",
    "never-asked": "never asked for",
    "not-started": "did not start",
    "broken": "broke",
    "unreachable": "does not answer",
    "gone": "machines gone",
}
STATUS_HEAD = ("run", "is", "on", "for", "spent", "predicted")
HISTORY_HEAD = ("run", "made", "plan", "outcome", "attempts", "node hours", "spent", "predicted")
CSV_HEAD = (
    "run",
    "created_at",
    "project",
    "owner",
    "plan",
    "title",
    "state",
    "outcome",
    "attempts",
    "preemptions",
    "node_hours",
    "spent_usd",
    "is_bound",
    "usd_low",
    "usd_expected",
    "usd_high",
    "usd_worst",
    "results",
    "is_unknown",
)


def render_status(found: Sequence[tuple[LaunchRecord, Finding]], *, now: datetime) -> list[Text]:
    """Return what each launch is doing, a line each."""
    if not found:
        return [Text("Nothing is open: no launch costs money.")]
    rows = [STATUS_HEAD, *(_status_row(record, finding, now) for record, finding in found)]
    waiting = (one for one, finding in found if finding == "waiting" and one.is_open)
    return [
        *_table(rows, ("left", "left", "left", "right", "right", "left")),
        *(_waits(one) for one in waiting),
        *(Text(text) for one, _ in found if (text := unattended_line(one))),
    ]


def _waits(record: LaunchRecord) -> Text:
    """Return what a launch pays while it waits for machines, and what ends that."""
    rate = record.controller_usd_per_hour
    pays = "nothing" if rate is None else f"SkyPilot's controller alone, ${rate:,.2f} an hour"
    return Text(
        f"{record.run} waits for machines or sets them up. While there are none it pays {pays}, and"
        " waits without end: --max-cost or a deadline that has passed ends it when a command looks,"
        f" `gpuplan down {record.run}` ends it now."
    )


def render_history(
    records: Sequence[LaunchRecord], sums: Sequence[LaunchSum], *, now: datetime
) -> list[Text]:
    """Return launches, newest first, and the totals of all that are wanted.

    Args:
        records: that are shown.
        sums: of all that are wanted, by any name.
        now: the time until which open ones are counted.
    """
    if not records:
        return [Text("No launch was made yet, or none is wanted.")]
    rows = [HISTORY_HEAD, *(_history_row(record, now) for record in records)]
    aligns: tuple[Align, ...] = (
        "left", "left", "left", "left", "right", "right", "right", "left",
    )  # fmt: skip
    return [*_table(rows, aligns), _totals(sums)]


def render_one(
    record: LaunchRecord, events: Iterable[tuple[datetime, str]], *, now: datetime
) -> list[Text]:
    """Return one launch in full: its attempts, and what happened when."""
    lines = [
        Text(f"{record.run}: {record.title}", style="bold"),
        Text(f"  {closing_line(record, now=now)}"),
        Text(f"  {record.outcome or record.state}{f': {record.why}' if record.why else ''}"),
        Text(f"  project {record.project}, owner {record.owner}, plan {record.plan}"),
    ]
    lines += [Text(f"  {_attempt_line(record, one, now)}") for one in record.attempts]
    lines += [Text(f"  {_time(at)}  {what}") for at, what in events]
    return lines


def launches_json(records: Sequence[LaunchRecord], *, now: datetime) -> str:
    """Return launches as JSON, with what each and all of them cost."""
    rows = [
        {
            **record.model_dump(mode="json"),
            "spent_usd": float(spent_usd(record, now=now)),
            "node_hours": node_hours(record, now=now),
        }
        for record in records
    ]
    total = float(_total(records, now))
    hours = sum(node_hours(record, now=now) for record in records)
    totals = {"launches": len(rows), "node_hours": hours, "spent_usd": total}
    return (
        json.dumps({"schema_version": "1.0", "launches": rows, "totals": totals}, indent=2) + "\n"
    )


def launches_csv(records: Sequence[LaunchRecord], *, now: datetime) -> str:
    """Return launches as CSV, a row each; unknown is empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_HEAD, lineterminator="\n")
    writer.writeheader()
    for record in records:
        facts: dict[str, Any] = {
            **{name: getattr(record, name, None) for name in CSV_HEAD},
            "created_at": record.created_at.isoformat(),
            "attempts": len(record.attempts),
            "preemptions": sum(one.preemptions for one in record.attempts),
            "node_hours": f"{node_hours(record, now=now):.4f}",
            "spent_usd": spent_usd(record, now=now),
            "is_bound": any(one.is_bound for one in record.attempts),
            "is_unknown": record.is_unknown,
        }
        writer.writerow({name: "" if facts[name] is None else facts[name] for name in CSV_HEAD})
    return stream.getvalue()


def _status_row(record: LaunchRecord, finding: Finding, now: datetime) -> tuple[str, ...]:
    last = record.last
    began_at = None if last is None else last.began_at
    seconds = None if began_at is None else (now - began_at).total_seconds()
    return (
        record.run,
        record.outcome or SAYINGS[finding],
        (None if last is None else last.infra) or UNKNOWN,
        UNKNOWN if seconds is None else _span(seconds),
        f"${spent_usd(record, now=now):,.2f}",
        _predicted(record),
    )


def _history_row(record: LaunchRecord, now: datetime) -> tuple[str, ...]:
    mark = MARKS[record.bound]
    return (
        record.run,
        _time(record.created_at),
        record.title,
        record.outcome or record.state,
        str(len(record.attempts) + sum(one.preemptions for one in record.attempts)),
        f"{node_hours(record, now=now):,.2f}",
        f"{mark}${spent_usd(record, now=now):,.2f}",
        _predicted(record),
    )


def _totals(sums: Sequence[LaunchSum]) -> Text:
    whole = whole_of(sums)
    still = f", {whole.open} still open" if whole.open else ""
    hours, usd = f"{whole.node_hours:,.2f} node hours", f"${whole.spent_usd:,.2f}"
    text = f"{whole.launches} launches{still}: {hours}, {MARKS[whole.bound]}{usd}"
    return Text(text, style="bold")


def _total(records: Sequence[LaunchRecord], now: datetime) -> Decimal:
    return sum((spent_usd(record, now=now) for record in records), Decimal(0))


def _attempt_line(record: LaunchRecord, attempt: Attempt, now: datetime) -> str:
    how = "spot" if attempt.spot else "on-demand"
    where = attempt.infra or "nowhere"
    usd = attempt_usd(record, attempt, now=now)
    price = "" if attempt.usd_per_hour is None else f" at ${attempt.usd_per_hour:,.2f} an hour"
    lost = f", {attempt.preemptions} preemptions" if attempt.preemptions else ""
    return (
        f"attempt {attempt.number}: {how} in {where}{price}{lost},"
        f" {MARKS[attempt.bound]}${usd:,.2f},"
        f" {attempt.outcome or 'open'}"
    )


def _predicted(record: LaunchRecord) -> str:
    if record.usd_low is None or record.usd_high is None:
        return UNKNOWN
    return f"${record.usd_low:,.2f}–{record.usd_high:,.2f}"  # noqa: RUF001


def _table(rows: Sequence[Sequence[str]], aligns: Sequence[Align]) -> list[Text]:
    widths = column_widths(rows)
    head, *body = (aligned(row, widths, aligns) for row in rows)
    return [Text(head, style="bold"), *map(Text, body)]


def _time(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _span(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d} h"
