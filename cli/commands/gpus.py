"""`gpuplan gpus`: the accelerators the clouds sell, or the sheet of one."""

from __future__ import annotations

from pathlib import Path

import click

from ..options.shared import GroupedCommand, option, output_options

FORMATS = ("table", "json", "csv", "markdown")


@click.command("gpus", cls=GroupedCommand)
@click.argument("name", required=False)
@option(
    "Machine",
    "--offers",
    "offers_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own machines, to be listed too (docs/catalogue.md).",
)
@output_options(*FORMATS)
def command(
    name: str | None, offers_file: Path | None, form: str | None, out_file: str | None, quiet: bool
) -> None:
    """List the accelerators with their peaks and lowest prices, or all that is known of one.

    A NAME that several have (A100) lists these.

    Peaks are dense; the lowest prices are those of clouds, not of marketplaces.
    """
    from ... import api
    from ...catalog.names import ambiguous_members, assumption_about
    from ...catalog.snapshot import load_catalogue
    from ..render.market import accelerators as render
    from ..terminal.output import chosen_format, screen_for, write_output

    form = chosen_format(form, out_file, FORMATS)
    screen = screen_for(out_file)
    catalogue = load_catalogue(offers_file) if name else None
    if name is not None and ambiguous_members(name, catalogue=catalogue):
        text = render.render_accelerators(api.gpus(name, offers=offers_file), form, screen)
    elif name is None:
        text = render.render_accelerators(api.gpus(offers=offers_file), form, screen)
    else:
        sheet = api.gpu(name, offers=offers_file)
        assumption = assumption_about(name)
        if assumption and not quiet:
            click.echo(f"{name} is taken as {sheet.accelerator.name}: {assumption}.", err=True)
        text = render.render_sheet(sheet, form, screen)
    write_output(text, out_file)
