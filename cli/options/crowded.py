"""The question of `gpuplan run` where more processes are asked for than the machine has cores."""

from __future__ import annotations

import sys

import click

from ...catalog.errors import UsageError
from ..terminal.output import is_terminal

FEW = 2
"""So many processes rehearse a layout on one core as well."""


def confirm_crowd(nproc: int | None, *, yes: bool) -> None:
    """Ask whether so many processes are meant, as each has a copy of Python, torch and the model.

    Args:
        nproc: as typed; None where a plan or the devices say it.
        yes: whether the answer was given with the command.

    Raises:
        UsageError: there is no terminal to ask on.
        click.Abort: the answer is no.
    """
    from ...launcher.local.machine import core_count

    cores = core_count()
    if nproc is None or yes or nproc <= max(FEW, cores):
        return
    what = f"--nproc {nproc:,} starts {nproc:,} processes, and this machine has {cores:,} cores"
    if not is_terminal(sys.stdin):
        raise UsageError(
            f"{what}.", fix=f"give --nproc {cores}, or -y to start as many all the same."
        )
    click.confirm(f"{what}. Start them?", abort=True, err=True)
