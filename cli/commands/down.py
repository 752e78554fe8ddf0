"""`gpuplan down`: tear down the machines of a launch now."""

from __future__ import annotations

from functools import partial

import click

from ..options.shared import GroupedCommand, option


@click.command("down", cls=GroupedCommand)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@option(
    "Guard",
    "--skypilot-is-gone",
    is_flag=True,
    help="The SkyPilot that was asked is gone for good, and you have looked for the machines in the"
    " console of their cloud: close the launch without it.",
)
@option("Output", "-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(runs: tuple[str, ...], skypilot_is_gone: bool, quiet: bool) -> int:
    """Tear down the machines of launches at once; `gpuplan stop` writes a checkpoint first.

    A second call does nothing. Results of --fetch that a broken connection holds up are tried for
    ten minutes, then given up. With --skypilot-is-gone nothing is ended where that SkyPilot cannot
    be asked: it says how to find the machines in their cloud, the cost is at least what was seen,
    and limits go on counting the worst case.
    """
    from ... import api
    from ..options.launches import end_each, make_context

    end = partial(api.launches.down, is_skypilot_gone=skypilot_is_gone)
    at_once = partial(end, is_patient=False)
    return end_each(make_context(quiet=quiet), runs, end, at_once)
