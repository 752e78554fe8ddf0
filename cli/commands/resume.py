"""`gpuplan resume`: continue a launch from its newest checkpoint."""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import click

from ..options.launch import LIMITS, F
from ..options.launch_values import ActionOnProjection, LimitOptions, limits_of
from ..options.shared import Count, Dollars, Duration, GroupedCommand, OneOf, option, with_options


def _limits(command: F) -> F:
    return with_options(LIMITS, command)


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(LimitOptions):
    """What the options of `gpuplan resume` hold; None: as the launch had it."""

    spot: bool | None
    max_cost: Decimal | None
    """US dollars."""
    max_hours: float | None
    deadline: float | None
    """Seconds from now."""
    on_projection: ActionOnProjection | None
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
@option("Output", "--detach", is_flag=True, help="Return once the job is submitted.")
@option("Output", "-q", "--quiet", is_flag=True, help="No log and no notes on stderr.")
def command(run: str, **options: Any) -> int:
    """Launch again a run that has not trained all its steps.

    It continues from its newest checkpoint, on the same kind of machines. A run that its guard
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
            changes=changes,
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
