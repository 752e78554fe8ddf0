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
    from ..options.launches import make_desk, say_closing

    desk = make_desk(quiet=quiet)
    for run in runs:
        say_closing(desk, api.launches.stop(desk, run))
    return 0
