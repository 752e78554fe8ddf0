"""`gpuplan capacity`: whether the account can start what is asked for, and where."""

from __future__ import annotations

from pathlib import Path

import click

from ...catalog.errors import NoFeasiblePlanError, UsageError
from ..options.shared import Count, Duration, GroupedCommand, list_option, option, output_options
from ..terminal.progress import counted_progress

FORMATS = ("table", "json", "csv", "markdown")
DEFAULT_TOP = 20
"""Rows of a table; json and csv hold every place unless --top says otherwise."""


@click.command("capacity", cls=GroupedCommand)
@click.argument("plan", metavar="[PLAN-ID|FILE|PROJECT]", required=False)
@option("Machine", "--accelerator", metavar="NAME[:N]", help="In place of a plan: H100:8.")
@option(
    "Machine",
    "--nodes",
    type=Count(whole=True),
    default=1,
    show_default=True,
    help="With --accelerator: how many instances.",
)
@list_option(
    "Machine",
    "--have",
    metavar="NAME:N",
    help="With a project: so many accelerators there are, H100:64, in place of its file's `have`.",
)
@list_option("Machine", "--provider", help="Only these: aws, gcp, azure.")
@list_option("Machine", "--region", help="Only these regions.")
@option("Machine", "--offline", is_flag=True, help="Never use the network: much is unknown then.")
@option("Money", "--spot", is_flag=True, help="With --accelerator: as spot machines.")
@option(
    "Money",
    "--block",
    type=Duration(),
    metavar="TIME",
    help="Also look for capacity blocks of this length (24h, 7d), paid whole in advance.",
)
@option(
    "Output",
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"How many to show; default: {DEFAULT_TOP} in a table, all in json and csv.",
)
@output_options(*FORMATS)
def command(
    plan: str | None,
    accelerator: str | None,
    nodes: int,
    have: tuple[str, ...],
    provider: tuple[str, ...],
    region: tuple[str, ...],
    offline: bool,
    spot: bool,
    block: float | None,
    top: int | None,
    form: str | None,
    out_file: str | None,
    quiet: bool,
) -> int:
    """Say where your account can start a plan's machines now: zones, quota, reservations, blocks.

    The clouds are asked with your own account and read requests only (docs/permissions.md). What
    they do not say is unknown, with the reason and the permission that is missing.

    Of a project (a gpuplan.yaml, or its folder): how many accelerators it wants by month, when
    everything runs and what slips with the quota that your account has, and when to ask for more;
    with --have, on the accelerators that there are (docs/budget.md).

    \b
    Examples:
      gpuplan capacity 24d0a27b1e
      gpuplan capacity --accelerator H100:8 --nodes 4 --provider aws --block 7d
      gpuplan capacity gpuplan.yaml
      gpuplan capacity gpuplan.yaml --have H100:64

    The exit code is 3 when it can be started nowhere.
    """  # noqa: D301
    if plan is not None and is_project(plan):
        given = (accelerator, nodes > 1, *provider, *region, spot, block, top)
        if any(given):
            raise UsageError(
                f"{plan} is a project, whose file says on which machines and where.",
                fix="leave all options out but --have, --offline, --format and -o.",
            )
        return _of_project(plan, have, form, out_file, offline=offline, quiet=quiet)
    if have:
        raise UsageError(
            "--have is what a project has, and none is given.",
            fix="gpuplan capacity gpuplan.yaml --have H100:64.",
        )
    from ... import api
    from ..render.market.capacity import render_capacity
    from ..terminal.output import chosen_format, screen_for, write_output

    with counted_progress("Asking the clouds …", quiet=quiet) as tell:
        found = api.capacity(
            plan,
            accelerator=accelerator,
            nodes=nodes,
            providers=provider,
            regions=region,
            purchase="spot" if spot else "on-demand",
            block_hours=None if block is None else max(1, round(block / 3600)),
            offline=offline,
            on_progress=tell,
        )
    form = chosen_format(form, out_file, FORMATS)
    if top is not None:
        found = found.model_copy(update={"lines": found.lines[:top]})
    shown = DEFAULT_TOP if top is None and form in ("table", "markdown") else None
    write_output(render_capacity(found, form, screen_for(out_file), top=shown), out_file)
    startable = any(one.startable != "no" for one in found.lines)
    return 0 if startable else NoFeasiblePlanError.exit_code


def is_project(given: str) -> bool:
    """Return whether a project's file is meant, or the folder of one, and no plan."""
    return Path(given).suffix in (".yaml", ".yml") or Path(given).is_dir()


def _of_project(
    project: str,
    have: tuple[str, ...],
    form: str | None,
    out_file: str | None,
    *,
    offline: bool,
    quiet: bool,
) -> int:
    from ... import api
    from ..render.market.capacity_over_time import render_capacity_over_time
    from ..terminal.output import chosen_format, screen_for, write_output

    there = _counts(have) if have else None
    with counted_progress("Planning the runs …", quiet=quiet) as tell:
        found = api.capacity_over_time(
            project, have=there, ask_quota=there is None, offline=offline, on_progress=tell
        )
    form = chosen_format(form, out_file, FORMATS)
    write_output(render_capacity_over_time(found, form, screen_for(out_file)), out_file)
    return 0


def _counts(have: tuple[str, ...]) -> dict[str, int]:
    """Return how many there are by name."""
    found: dict[str, int] = {}
    for text in have:
        name, colon, count = text.rpartition(":")
        if not colon or not name or not (count.isascii() and count.isdigit()):
            raise UsageError(f"--have {text} is not of the form NAME:N.", fix="write H100:64.")
        if name in found:
            raise UsageError(f"--have {name} is given twice.", fix="give the sum.")
        found[name] = int(count)
    return found
