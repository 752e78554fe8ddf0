"""`gpuplan stop`: end a launch after a checkpoint."""

from __future__ import annotations

import contextlib

import click

from ..options.shared import GroupedCommand, option


@click.command("stop", cls=GroupedCommand)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@option("Output", "-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(runs: tuple[str, ...], quiet: bool) -> int:
    """Stop launches after a checkpoint, and tear down their machines.

    `gpuplan resume RUN` continues from that checkpoint. All are told before one is waited for.
    """
    from ... import api
    from ...catalog.errors import GpuplanError
    from ..options.launches import end_each, make_context

    context = make_context(quiet=quiet)
    if len(runs) > 1:
        # A checkpoint and results take minutes, in which the other jobs would train on.
        for run in runs:
            with contextlib.suppress(GpuplanError):  # `stop` meets it too, and says it.
                api.launches.tell_to_stop(context, run)
    return end_each(context, runs, api.launches.stop)
