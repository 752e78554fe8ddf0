"""`gpuplan down`: tear down the machines of a launch now."""

from __future__ import annotations

import click

from ..options.shared import GroupedCommand, option


@click.command("down", cls=GroupedCommand)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@option("Output", "-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(runs: tuple[str, ...], quiet: bool) -> int:
    """Tear down the machines of launches at once; `gpuplan stop` writes a checkpoint first.

    A second call does nothing.
    """
    from ... import api
    from ..options.launches import end_each, make_context

    return end_each(make_context(quiet=quiet), runs, api.launches.down)
