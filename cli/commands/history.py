"""`gpuplan history`: every launch with its outcome and cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..options.groups import OutputOptions
from ..options.shared import Count, Duration, GroupedCommand, list_option, option, output_options

if TYPE_CHECKING:
    from ...launcher.store.launch_record import LaunchRecord

FORMATS = ("table", "json", "csv")


@dataclass(frozen=True, kw_only=True)
class HistoryOptions(OutputOptions):
    """What the options of `gpuplan history` hold."""

    project: str | None
    owner: str | None
    outcome: tuple[str, ...]
    since: float | None
    """Seconds before now."""
    limit: int | None


@click.command("history", cls=GroupedCommand)
@click.argument("run", required=False)
@option("Work", "--project", metavar="NAME", help="Only launches of this project.")
@option("Work", "--owner", metavar="NAME", help="Only launches of this owner.")
@list_option(
    "Work", "--outcome", help="Only launches with this outcome: succeeded, failed, guarded, …"
)
@option("Work", "--since", type=Duration(), help="Only launches made within this time: 30d.")
@option(
    "Output",
    "--limit",
    type=Count(whole=True),
    help="Number of launches, newest first; totals count all.",
)
@output_options(*FORMATS)
def command(run: str | None, **options: Any) -> int:
    """List every launch with its attempts, hours and dollars, and the totals; or one in full.

    It reads the store alone, and asks no cloud: the cost of an open launch is the one of its last
    known state, counted until now. `gpuplan status` asks again.
    """
    from ... import api
    from ..options.launches import make_context, say_unreadable
    from ..render.launches import launches_csv, launches_json, render_history, render_one
    from ..render.text.columns import to_text
    from ..terminal.output import chosen_format, screen_for, write_output

    asked = HistoryOptions(**options)
    context = make_context(quiet=True)
    now, out_file = context.now(), asked.out_file
    form = chosen_format(asked.form, out_file, FORMATS)
    if run is not None:
        record = context.ledger.find(run)
        records, lines = [record], render_one(record, context.ledger.events(record.run), now=now)
    else:
        say_unreadable(context)
        records = [one for one in api.launches.history(context) if _is_wanted(one, asked, now)]
        lines = render_history(records, now=now, limit=asked.limit)
    if form == "json":
        write_output(launches_json(records, now=now), out_file)
    elif form == "csv":
        write_output(launches_csv(records, now=now), out_file)
    else:
        write_output(to_text(lines, colour=screen_for(out_file).color), out_file)
    return 0


def _is_wanted(record: LaunchRecord, asked: HistoryOptions, now: datetime) -> bool:
    since_s = asked.since
    return (
        asked.project in (None, record.project)
        and asked.owner in (None, record.owner)
        and (not asked.outcome or (record.outcome or "open") in asked.outcome)
        and (since_s is None or (now - record.created_at).total_seconds() <= since_s)
    )
