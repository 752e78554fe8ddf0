"""`gpuplan status`: what is rented now, brought up to date."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..options.groups import OutputOptions
from ..options.shared import Duration, GroupedCommand, option, output_options

if TYPE_CHECKING:
    from ...launcher.lifecycle.context import LaunchContext
    from ...launcher.lifecycle.observing.observe import Finding
    from ...launcher.store.launch_record import LaunchRecord

FORMATS = ("table", "json")


@dataclass(frozen=True, kw_only=True)
class StatusOptions(OutputOptions):
    """What the options of `gpuplan status` hold."""

    watch: bool
    every: float
    """Seconds."""


@click.command("status", cls=GroupedCommand)
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@option("Output", "--watch", is_flag=True, help="Poll until no launch is open.")
@option(
    "Output",
    "--every",
    type=Duration(bare_unit="s"),
    default="15s",
    show_default=True,
    help="Time between two polls of --watch.",
)
@output_options(*FORMATS)
def command(runs: tuple[str, ...], **options: Any) -> int:
    """Show what every open launch is doing and what it has cost, or only the launches RUN.

    A launch whose job has ended is closed here, whichever command started it: its results are
    fetched, its machines torn down, its cost recorded.
    """
    from ... import api
    from ...launcher.lifecycle.engine import LostMachineError, NoEngineError
    from ..options.launches import make_context, say, say_closing, say_unreadable

    asked = StatusOptions(**options)
    context = make_context(quiet=asked.quiet)
    say_unreadable(context)
    has_answered, is_open = False, True
    while True:
        try:
            found = api.launches.look_at(context, runs)
        except NoEngineError as error:
            # A network that is away for a while: --watch may be all that brings results here.
            if not has_answered:
                raise
            say(f"{error.message} It is asked again.")
        except LostMachineError as error:
            # The same, while results were brought: the launch is still open.
            if not asked.watch:
                raise
            has_answered = True
            say(f"{error.message} That is tried again.")
        else:
            has_answered = True
            is_open = any(record.is_open for record, _ in found)
            _write(context, found, asked)
            for record, _ in found:
                if not asked.quiet:
                    say_closing(context, record)
        if not (asked.watch and is_open):
            return 0
        try:
            time.sleep(asked.every)
        except KeyboardInterrupt:
            return 0


def _write(
    context: LaunchContext, found: list[tuple[LaunchRecord, Finding]], asked: StatusOptions
) -> None:
    from ..render.runs.launches import launches_json, render_status
    from ..render.text.columns import to_text
    from ..terminal.output import chosen_format, screen_for, write_output

    out_file = asked.out_file
    if chosen_format(asked.form, out_file, FORMATS) == "json":
        write_output(launches_json([record for record, _ in found], now=context.now()), out_file)
        return
    screen = screen_for(out_file)
    write_output(to_text(render_status(found, now=context.now()), colour=screen.color), out_file)
