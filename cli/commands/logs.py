"""`gpuplan logs`: what the job of a launch prints."""

from __future__ import annotations

import sys

import click

from ..options.shared import Count, GroupedCommand, option


@click.command("logs", cls=GroupedCommand)
@click.argument("run")
@option(
    "Output", "-f", "--follow", is_flag=True, help="Stay until the job ends, then end the launch."
)
@option("Output", "--lines", type=Count(whole=True), help="Only the last so many lines.")
def command(run: str, follow: bool, lines: int | None) -> int:
    """Show what the job of a launch prints, on standard output.

    With -f the launch is brought to its end when the job is over, as `gpuplan launch` does.
    """
    from ... import api
    from ..options.launches import left_running, make_context, outcome_code, say_closing

    context = make_context()
    run = context.ledger.find(run).run
    try:
        api.launches.show_log(context, run, sys.stdout, follow=follow, lines=lines or 0)
    except KeyboardInterrupt:
        return left_running(context, run)
    if not follow:
        return 0
    ((record, _),) = api.launches.look_at(context, [run])
    say_closing(context, record)
    return outcome_code(record)
