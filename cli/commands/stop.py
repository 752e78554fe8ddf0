"""`gpuplan stop`: end a launch after a checkpoint."""

from __future__ import annotations

import click

from ..options.shared import GroupedCommand, option


@click.command("stop", cls=GroupedCommand)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@option("Output", "-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(runs: tuple[str, ...], quiet: bool) -> int:
    """Stop launches after a checkpoint, and tear down their machines.

    `gpuplan resume RUN` continues from that checkpoint.
    """
    from ... import api
    from ..options.launches import end_each, make_context

    return end_each(make_context(quiet=quiet), runs, api.launches.stop)
