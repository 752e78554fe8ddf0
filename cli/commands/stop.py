"""`gpuplan stop`: end a launch after a checkpoint."""

from __future__ import annotations

import click

from ..options.shared import GroupedCommand, option


@click.command("stop", cls=GroupedCommand)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@option("Output", "-q", "--quiet", is_flag=True, help="Say nothing on the way.")
def command(runs: tuple[str, ...], quiet: bool) -> int:
    """Let launches write a checkpoint, then give their machines back.

    `gpuplan resume RUN` goes on from there.
    """
    from ... import api
    from ..options.launches import make_context, say_closing

    context = make_context(quiet=quiet)
    for run in runs:
        say_closing(context, api.launches.stop(context, run))
    return 0
