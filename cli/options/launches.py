"""What the commands about launches share: the launch context, and the closing lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from ...catalog.errors import GpuplanError, UsageError

if TYPE_CHECKING:
    from ...launcher.lifecycle.context import LaunchContext
    from ...launcher.store.launch_record import LaunchRecord

CODES = {
    "succeeded": 0,
    "stopped": 0,
    "cancelled": 0,
    "no-capacity": 3,
    "guarded": 4,
}
"""Outcome → exit code; every other is a failure."""


def make_context(*, quiet: bool = False, changes: dict[str, Any] | None = None) -> LaunchContext:
    """Return the launch context of this machine's user, which prints to stderr."""
    from ... import api

    return api.launches.context(
        tell=(lambda _text: None) if quiet else say,
        log=None if quiet else sys.stderr,
        changes=changes,
    )


def say(text: str) -> None:
    """Print one line to stderr."""
    click.echo(text, err=True)


def say_unreadable(context: LaunchContext, *, of_sums: bool = False) -> None:
    """Print which launches have unreadable records; they are missing from every list and sum.

    Args:
        context: The world.
        of_sums: Only those that are missing from sums: what is summed up already need not be read.
    """
    ledger = context.ledger
    for run in ledger.not_in_sums() if of_sums else ledger.unreadable():
        say(f"{run} is left out: its record in the store cannot be read; it may cost money.")


def say_closing(context: LaunchContext, record: LaunchRecord) -> None:
    """Print how a launch ended and what it cost; nothing while it is open."""
    from ...launcher.store.accounting import closing_line

    if record.is_open:
        return
    click.echo(f"{record.run} {record.outcome}: {record.why}", err=True)
    click.echo(closing_line(record, now=context.now()), err=True)


def end_each(
    context: LaunchContext,
    runs: Sequence[str],
    end: Callable[[LaunchContext, str], LaunchRecord],
    end_at_once: Callable[[LaunchContext, str], LaunchRecord] | None = None,
) -> int:
    """End each of several launches, whether another could be or not; return the exit code.

    Args:
        context: The world.
        runs: Run ids or their beginnings.
        end: Ends one, and returns it.
        end_at_once: Does so without waiting for a connection that broke off: it is tried for all
            first, so that no launch goes on because another one is waited for. None: as `end`.
    """
    codes: list[int] = []
    is_one = len(runs) == 1
    if end_at_once is not None and not is_one:
        runs, code = _end_what_answers(context, runs, end_at_once)
        codes.append(code)
    for run in runs:
        try:
            say_closing(context, end(context, run))
        except GpuplanError as error:
            if is_one:
                raise
            say(f"Error: {error}")
            codes.append(error.exit_code)
    return max(codes, default=0)


def _end_what_answers(
    context: LaunchContext,
    runs: Sequence[str],
    end_at_once: Callable[[LaunchContext, str], LaunchRecord],
) -> tuple[list[str], int]:
    """End several launches; return those whose connection broke off, and the others' exit code."""
    from ...launcher.lifecycle.engine import LostMachineError

    lost: list[str] = []
    code = 0
    for run in runs:
        try:
            say_closing(context, end_at_once(context, run))
        except LostMachineError:
            lost.append(run)
        except GpuplanError as error:
            say(f"Error: {error}")
            code = max(code, error.exit_code)
    return lost, code


def outcome_code(record: LaunchRecord) -> int:
    """Return the exit code that tells how a launch ended; 0 while it is open."""
    return 0 if record.outcome is None else CODES.get(record.outcome, 1)


def is_projection(record: LaunchRecord) -> bool:
    """Return whether the guard ended a launch because of its projection, whatever its cause."""
    return record.outcome == "guarded" and record.guard_why in ("projection", "network")


def detached_alone(cloud: str, usd_per_hour: Decimal) -> UsageError:
    """Return the error of a launch that nothing would end: --detach on a cloud without autodown."""
    return UsageError(
        f"SkyPilot ends no machines on {cloud} by itself, so with --detach they would cost"
        f" ${usd_per_hour:,.2f} an hour without end, after the job and past every limit.",
        fix="leave --detach out and let this command run until the job has ended, on a computer"
        " that stays on; or take another --provider.",
    )


def refuse_unattended(record: LaunchRecord) -> None:
    """Refuse to leave a launch alone whose machines nothing else ends.

    Raises:
        UsageError: it is such a one.
    """
    from ...launcher.store.unattended import is_ended_here_alone

    if is_ended_here_alone(record):
        usd_per_hour = max(one.usd_per_hour for one in record.places) * record.nodes
        raise detached_alone(record.places[0].infra.partition("/")[0], usd_per_hour)


def say_unattended(record: LaunchRecord) -> None:
    """Print what is lost of a launch if no command follows it."""
    from ...launcher.store.unattended import unattended_line

    text = unattended_line(record)
    if text is not None:
        say(text)


def left_running(context: LaunchContext, run: str) -> int:
    """Print how to find a launch again after Ctrl-C; return the exit code.

    Args:
        context: Whose ledger knows whether it is open.
        run: Its run id, or a part of it that was enough to find it.
    """
    from ..exit_codes import EXIT_INTERRUPTED

    is_it = [one for one in context.ledger.open() if one.run.startswith(run) or one.cluster == run]
    if not is_it:
        click.echo(f"\nInterrupted; {run} is not open, and no machine of it is left.", err=True)
        return EXIT_INTERRUPTED
    click.echo(
        f"\n{run} still runs, and costs money until it ends.\n"
        f"  gpuplan status {run}     what it is doing\n"
        f"  gpuplan logs -f {run}    follow it again\n"
        f"  gpuplan stop {run}       checkpoint, then tear down the machines\n"
        f"  gpuplan down {run}       tear down the machines now",
        err=True,
    )
    for one in is_it:
        say_unattended(one)
    return EXIT_INTERRUPTED
