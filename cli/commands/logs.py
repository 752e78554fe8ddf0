"""`gpuplan logs`: what the job of a launch prints."""

from __future__ import annotations

import sys

import click

from ..options.shared import Count, GroupedCommand, option


@click.command("logs", cls=GroupedCommand)
@click.argument("run")
@option(
    "Output",
    "-f",
    "--follow",
    is_flag=True,
    help="Follow the job to its end, then close the launch.",
)
@option("Output", "--lines", type=Count(whole=True), help="Only this many lines, the last ones.")
def command(run: str, follow: bool, lines: int | None) -> int:
    """Show what the job of a launch prints, on standard output.

    With -f the launch is closed when the job is over (results fetched, machines torn down), as
    `gpuplan launch` does; a connection that breaks off is tried again for a day.
    """
    from ... import api
    from ..options.launches import left_running, make_context, outcome_code, say_closing

    context = make_context()
    run = context.ledger.find(run).run
    try:
        if not follow:
            api.launches.show_log(context, run, sys.stdout, lines=lines or 0)
            return 0
        record = api.launches.follow_log(context, run, sys.stdout, lines=lines or 0)
    except KeyboardInterrupt:
        return left_running(context, run)
    say_closing(context, record)
    return outcome_code(record)
