"""`gpuplan doctor`: what of this machine works, what does not, and how to fix it."""

from __future__ import annotations

import click

from ..options.shared import GroupedCommand, output_options
from ..terminal.progress import progress

FORMATS = ("table", "json")


@click.command("doctor", cls=GroupedCommand)
@output_options(*FORMATS)
def command(form: str | None, out_file: str | None, quiet: bool) -> int:
    """Check torch, CUDA, the devices and their links, folders and extras of this machine.

    The exit code is 1 when something is broken. A machine without a GPU is not broken: estimates
    need none.
    """
    from ... import api
    from ..render.doctor import render_doctor
    from ..render.text.columns import comfortable, to_text
    from ..terminal.output import chosen_format, screen_for, write_output

    with progress("Checking this machine …", quiet=quiet):
        found = api.doctor()
    if chosen_format(form, out_file, FORMATS) == "json":
        write_output(found.model_dump_json() + "\n", out_file)
    else:
        screen = screen_for(out_file)
        lines = render_doctor(found, width=comfortable(screen.width))
        write_output(to_text(lines, colour=screen.color), out_file)
    return 1 if found.broken else 0
