"""`gpuplan prices`: snapshots of the clouds' prices of today, kept beside those of the package."""

from __future__ import annotations

from datetime import date, datetime

import click

from ...catalog.errors import UsageError
from ..options.shared import GroupedCommand, list_option, option, output_options
from ..terminal.progress import counted_progress

FORMATS = ("table", "json", "csv", "markdown")
HISTORY_FORMATS = (*FORMATS, "svg")
STATE_FORMATS = ("table", "json", "markdown")
DEFAULT_TOP = 20
"""Rows of a table; json and csv hold every change unless --top says otherwise."""

offline_option = option(
    "Machine",
    "--offline",
    is_flag=True,
    help="Never use the network.",
)


@click.group("prices", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Show which prices estimates take; refresh them from the clouds, compare them over time.

    Without a subcommand it says which snapshot is in use. The prices of the package are dated, and
    need no network; your own snapshots go over them (docs/prices.md).
    """
    if context.invoked_subcommand is None:
        context.invoke(state, form=None, out_file=None, quiet=False)


@command.command("show", cls=GroupedCommand)
@output_options(*STATE_FORMATS)
def state(form: str | None, out_file: str | None, quiet: bool) -> None:
    """Show which snapshot is in use, and what each provider answered."""
    from ... import api
    from ..render.market.prices import render_snapshot
    from ..terminal.output import chosen_format, screen_for, write_output

    form = chosen_format(form, out_file, STATE_FORMATS)
    screen = screen_for(out_file)
    write_output(render_snapshot(api.prices.current(), form, screen), out_file)


@command.command("refresh", cls=GroupedCommand)
@list_option("Machine", "--provider", help="Only these: aws, gcp, azure.")
@list_option("Machine", "--region", help="Only these regions.")
@offline_option
@option(
    "Money",
    "--accept-changes",
    is_flag=True,
    help="Take prices, too, that are far from the last ones and are else held back.",
)
@output_options(*STATE_FORMATS)
def refresh(
    provider: tuple[str, ...],
    region: tuple[str, ...],
    offline: bool,
    accept_changes: bool,
    form: str | None,
    out_file: str | None,
    quiet: bool,
) -> None:
    """Ask the clouds for today's prices, with your own account, and keep them.

    Only read requests are made. Every row passes named rules first; a price far from the last one
    is held back. A provider that does not answer keeps its older prices. The exit code is 5 when
    nobody answers; older snapshots stay as they are, whatever happens.
    """
    from ... import api
    from ..render.market.prices import render_snapshot
    from ..terminal.output import chosen_format, screen_for, write_output

    if offline:
        raise UsageError(
            "--offline: prices cannot be refreshed without the network.",
            fix="leave --offline out; `gpuplan prices` shows those that are in use.",
        )
    with counted_progress("Asking the clouds …", quiet=quiet) as tell:
        snapshot = api.prices.refresh(
            providers=provider,
            regions=region,
            accept_changes=accept_changes,
            on_progress=tell,
        )
    form = chosen_format(form, out_file, STATE_FORMATS)
    write_output(render_snapshot(snapshot, form, screen_for(out_file)), out_file)


@command.command("diff", cls=GroupedCommand)
@option(
    "Money",
    "--since",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Compare with the newest snapshot of this day or before; default: the one before.",
)
@option(
    "Output",
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"How many to show; default: {DEFAULT_TOP} in a table, all in json and csv.",
)
@output_options(*FORMATS)
def diff(
    since: datetime | None, top: int | None, form: str | None, out_file: str | None, quiet: bool
) -> None:
    """Show which prices changed from an older snapshot to the newest, the largest change first."""
    from ... import api
    from ..render.market.prices import render_difference
    from ..terminal.output import chosen_format, screen_for, write_output

    found = api.prices.diff(_day(since))
    form = chosen_format(form, out_file, FORMATS)
    if top is not None:
        found = found.model_copy(update={"changes": found.changes[:top]})
    shown = DEFAULT_TOP if top is None and form in ("table", "markdown") else None
    text = render_difference(found, form, screen_for(out_file), top=shown)
    write_output(text, out_file)


@command.command("history", cls=GroupedCommand)
@click.argument("accelerator", metavar="NAME[:N]")
@list_option("Machine", "--provider", help="Only these providers.")
@output_options(*HISTORY_FORMATS)
def history(
    accelerator: str,
    provider: tuple[str, ...],
    form: str | None,
    out_file: str | None,
    quiet: bool,
) -> None:
    """Show the lowest prices of an accelerator in every snapshot, by provider.

    NAME:8 is instances of eight. A file that ends in .svg gets a picture.
    """
    from ... import api
    from ..render.market.prices import render_history
    from ..terminal.output import chosen_format, screen_for, write_output

    found = api.prices.history(accelerator, providers=provider)
    form = chosen_format(form, out_file, HISTORY_FORMATS)
    if form == "svg":
        from ..render.market.price_chart import history_svg

        write_output(history_svg(found), out_file)
        return
    write_output(render_history(found, form, screen_for(out_file)), out_file)


def _day(given: datetime | None) -> date | None:
    return None if given is None else given.date()
