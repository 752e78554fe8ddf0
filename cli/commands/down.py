"""`gpuplan down`: give the machines of a launch back now."""

from __future__ import annotations

import click

from ..options.shared import GroupedCommand, option


@click.command("down", cls=GroupedCommand)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@option("Output", "-q", "--quiet", is_flag=True, help="Say nothing on the way.")
def command(runs: tuple[str, ...], quiet: bool) -> int:
    """Give the machines of launches back at once; `gpuplan stop` writes a checkpoint first.

    Doing it twice does nothing the second time.
    """
    from ... import api
    from ..options.launches import make_context, say_closing

    context = make_context(quiet=quiet)
    for run in runs:
        say_closing(context, api.launches.down(context, run))
    return 0
