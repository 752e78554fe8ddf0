"""`gpuplan check`: which clouds machines can be rented from, and what the others lack."""

from __future__ import annotations

import click

from ..options.shared import GroupedCommand, output_options
from ..terminal.progress import progress

FORMATS = ("table", "json")


@click.command("check", cls=GroupedCommand)
@output_options(*FORMATS)
def command(form: str | None, out_file: str | None, quiet: bool) -> int:
    """Show in which of your clouds and clusters SkyPilot can rent machines.

    Each cloud is asked with your own keys, which takes up to a minute; nothing is rented, and no
    key is shown or kept. The exit code is 0 when at least one can be used, else 1.
    """
    from ... import api
    from ..render.market.check import render_check
    from ..render.text.columns import comfortable, to_text
    from ..terminal.output import chosen_format, screen_for, write_output

    with progress("Asking the clouds …", quiet=quiet):
        found = api.check()
    if chosen_format(form, out_file, FORMATS) == "json":
        write_output(found.model_dump_json() + "\n", out_file)
    else:
        screen = screen_for(out_file)
        lines = render_check(found, width=comfortable(screen.width))
        write_output(to_text(lines, colour=screen.color), out_file)
    return 0 if found.usable else 1
