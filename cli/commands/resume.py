"""`gpuplan resume`: continue a launch from its newest checkpoint."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from ..options.launch import LIMITS, F
from ..options.launch_values import ActionOnProjection, LimitOptions, limits_of
from ..options.shared import Count, Dollars, Duration, GroupedCommand, OneOf, option, with_options
from ..terminal.output import is_terminal

if TYPE_CHECKING:
    from ...launcher.lifecycle.context import LaunchContext
    from ...launcher.prepare.money.bought_again import BoughtAgain


def _limits(command: F) -> F:
    return with_options(LIMITS, command)


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(LimitOptions):
    """What the options of `gpuplan resume` hold; None: as the launch had it."""

    spot: bool | None
    max_cost: Decimal | None
    """US dollars."""
    max_hours: float | None
    max_hourly_cost: Decimal | None
    """US dollars."""
    deadline: float | None
    """Seconds from now."""
    on_projection: ActionOnProjection | None
    check_capacity: bool
    yes: bool
    detach: bool
    quiet: bool


@click.command("resume", cls=GroupedCommand)
@click.argument("run")
@option("Money", "--spot/--on-demand", default=None, help="How to buy; default: as before.")
@option(
    "Money",
    "--max-cost",
    type=Dollars(),
    help="Limit on the cost of all attempts together: 400, 2k.",
)
@option(
    "Money",
    "--max-hours",
    type=Count(),
    help="Limit on the hours of all attempts together.",
)
@option(
    "Money",
    "--max-hourly-cost",
    type=Dollars(),
    help="Refuse machines that cost more an hour; default: as before.",
)
@option(
    "Money",
    "--deadline",
    type=Duration(),
    help="Finish within this time from now, instead of by the deadline of before: 12h, 3d.",
)
@_limits
@option(
    "Guard",
    "--on-projection",
    type=OneOf(("ask", "stop", "continue")),
    help="What to do when the first steps show that the run will cost more than predicted.",
)
@option(
    "Machine",
    "--check-capacity/--no-check-capacity",
    default=True,
    help="Ask the cloud first whether your account can start the machines; refuse where it says"
    " no.",
)
@option("Output", "-y", "--yes", is_flag=True, help="Rent without asking.")
@option("Output", "--detach", is_flag=True, help="Return once the job is submitted.")
@option("Output", "-q", "--quiet", is_flag=True, help="No log and no notes on stderr.")
def command(run: str, **options: Any) -> int:
    """Launch again a run that has not trained all its steps.

    It continues from its newest checkpoint, on the same kind of machines. What they cost as they
    are bought now is shown, and you are asked, before anything is rented. A run that its guard
    ended needs another limit first.
    """
    from ... import api
    from ..options.launches import (
        left_running,
        make_context,
        outcome_code,
        refuse_unattended,
        say_closing,
        say_unattended,
    )

    asked = ResumeOptions(**options)
    usd, hours = asked.max_cost, asked.max_hours
    named = {
        "max_cost_usd": None if usd is None else float(usd),
        "max_hours": hours,
        "deadline_s": None if asked.deadline is None else time.time() + asked.deadline,
        "action": asked.on_projection,
    }
    changes = {key: value for key, value in named.items() if value is not None}
    context = make_context(quiet=asked.quiet, changes=changes)
    record = context.ledger.find(run)
    run = record.run
    if asked.detach:
        refuse_unattended(record)
    try:
        record = api.launches.resume(
            context,
            run,
            limits_of(asked),
            spot=asked.spot,
            reserved_usd=usd,
            max_hourly_cost_usd=asked.max_hourly_cost,
            changes=changes,
            check_capacity=asked.check_capacity,
            confirm=lambda again: _confirm(again, context, asked),
        )
    except KeyboardInterrupt:
        return left_running(context, run)
    if asked.detach:
        click.echo(
            f"Resumed {record.run}; follow it with `gpuplan logs -f {record.run}`.", err=True
        )
        say_unattended(record)
        return 0
    try:
        record = api.launches.follow(context, run)
    except KeyboardInterrupt:
        return left_running(context, run)
    say_closing(context, record)
    return outcome_code(record)


def _confirm(again: BoughtAgain, context: LaunchContext, asked: ResumeOptions) -> None:
    """Show what it costs, and ask before money is spent.

    Raises:
        UsageError: there is no terminal to ask on, and no -y.
        click.Abort: the answer is no.
    """
    from ...catalog.errors import UsageError
    from ..render.runs.resumed import resumed_lines

    may_ask = is_terminal(sys.stdin)
    if not asked.quiet or (may_ask and not asked.yes):
        for line in resumed_lines(again, now=context.now()):
            click.echo(line, err=True)
    if asked.yes:
        return
    if not may_ask:
        raise UsageError(
            "Renting machines needs your confirmation, and there is no terminal to ask on.",
            fix="give -y to rent without asking.",
        )
    click.confirm("Rent these machines?", abort=True, err=True)
