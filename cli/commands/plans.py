"""`gpuplan plans`: the estimates that were kept, and their plans."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click

from ..options.groups import OutputOptions
from ..options.shared import Count, GroupedCommand, option, output_options

FORMATS = ("table", "json", "csv", "markdown")


@dataclass(frozen=True, kw_only=True)
class PlansOptions(OutputOptions):
    """What the options of `gpuplan plans` hold."""

    limit: int
    """Estimates."""
    top: int
    """Plans of each."""


@click.command("plans", cls=GroupedCommand)
@option(
    "Output",
    "--limit",
    type=Count(whole=True),
    default=10,
    show_default=True,
    help="Number of estimates, newest first.",
)
@option(
    "Output",
    "--top",
    type=Count(whole=True),
    default=3,
    show_default=True,
    help="Number of plans of each estimate; JSON and CSV hold all of them.",
)
@output_options(*FORMATS)
def command(**options: Any) -> None:
    """List the stored estimates and their plans, newest first.

    Every estimate is stored with its first 100 plans; `gpuplan show PLAN-ID` shows one in full.
    """
    from ... import api
    from ..render.plans.plans import render_kept, render_kept_csv, render_kept_markdown
    from ..render.text.columns import comfortable, to_text
    from ..render.text.folded import folded
    from ..terminal.output import chosen_format, screen_for, write_output

    asked = PlansOptions(**options)
    estimates = api.kept_estimates(
        limit=asked.limit, on_note=lambda text: click.echo(f"Left out. {text}", err=True)
    )
    out_file = asked.out_file
    form = chosen_format(asked.form, out_file, FORMATS)
    if form == "csv":
        write_output(render_kept_csv(estimates), out_file)
        return
    if form == "markdown":
        write_output(render_kept_markdown(estimates, top=asked.top), out_file)
        return
    if form == "json":
        kept = [estimate.model_dump(mode="json") for estimate in estimates]
        write_output(json.dumps({"schema_version": "1.0", "estimates": kept}) + "\n", out_file)
        return
    screen = screen_for(out_file)
    lines = render_kept(estimates, top=asked.top, width=comfortable(screen.width))
    write_output(to_text(folded(lines, screen.width), colour=screen.color), out_file)
