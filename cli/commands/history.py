"""`gpuplan history`: every launch with its outcome and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ...catalog.errors import UsageError
from ..options.groups import OutputOptions
from ..options.shared import (
    Count,
    Duration,
    GroupedCommand,
    OneOf,
    list_option,
    option,
    output_options,
)

if TYPE_CHECKING:
    from ...launcher.lifecycle.context import LaunchContext
    from ...launcher.store.launch_sums import By

FORMATS = ("table", "json", "csv")
BYS = ("owner", "project", "provider", "month", "accelerator", "outcome")
"""As `launcher/store/launch_sums.py` has them, which is not imported to parse an option."""


@dataclass(frozen=True, kw_only=True)
class HistoryOptions(OutputOptions):
    """What the options of `gpuplan history` hold."""

    project: str | None
    owner: str | None
    outcome: tuple[str, ...]
    since: float | None
    """Seconds before now."""
    limit: int | None
    by: By | None


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
    "--by",
    type=OneOf(BYS),
    help="Sums in place of launches: by owner, project, provider, month, accelerator or outcome.",
)
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

    \b
    Examples:
      gpuplan history --since 30d
      gpuplan history --by owner --since 7d --format csv
    """  # noqa: D301
    from ... import api
    from ..options.launches import make_context, say_unreadable
    from ..render.runs.launches import launches_csv, launches_json, render_history, render_one
    from ..render.text.columns import to_text
    from ..terminal.output import chosen_format, screen_for, write_output

    asked = HistoryOptions(**options)
    context = make_context(quiet=True)
    now, out_file = context.now(), asked.out_file
    form = chosen_format(asked.form, out_file, FORMATS)
    if asked.by is not None:
        _refuse_run(run)
        write_output(_sums(context, asked, form), out_file)
        return 0
    if run is not None:
        record = context.ledger.find(run)
        records, lines = [record], render_one(record, context.ledger.events(record.run), now=now)
    else:
        is_table = form == "table"
        say_unreadable(context, of_sums=is_table and asked.limit is not None)
        wanted = _wanted(asked)
        records = api.launches.history(context, **wanted, limit=asked.limit if is_table else None)
        sums = api.launches.sums(context, "outcome", **wanted) if is_table else []
        lines = render_history(records, sums, now=now)
    if form == "json":
        write_output(launches_json(records, now=now), out_file)
    elif form == "csv":
        write_output(launches_csv(records, now=now), out_file)
    else:
        write_output(to_text(lines, colour=screen_for(out_file).color), out_file)
    return 0


def _refuse_run(run: str | None) -> None:
    if run is not None:
        raise UsageError(
            f"--by sums up launches, and one is named: {run}.", fix="leave out one of the two."
        )


def _sums(context: LaunchContext, asked: HistoryOptions, form: str) -> str:
    """Return the sums as text."""
    from ... import api
    from ..options.launches import say_unreadable
    from ..render.runs import launch_sums
    from ..render.text.columns import to_text
    from ..terminal.output import screen_for

    assert asked.by is not None
    found = api.launches.sums(context, asked.by, **_wanted(asked))
    say_unreadable(context, of_sums=True)
    if form == "json":
        return launch_sums.sums_json(found, asked.by)
    if form == "csv":
        return launch_sums.sums_csv(found[: asked.limit], asked.by)
    lines = launch_sums.render_sums(found, asked.by, limit=asked.limit)
    return to_text(lines, colour=screen_for(asked.out_file).color)


def _wanted(asked: HistoryOptions) -> dict[str, Any]:
    """Return which launches are wanted, as `api.launches` takes it."""
    return {
        "project": asked.project,
        "owner": asked.owner,
        "outcomes": asked.outcome,
        "since_s": asked.since,
    }
