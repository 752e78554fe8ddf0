"""`gpuplan actuals`: what a run took beside what its plan predicted."""

from __future__ import annotations

import click

from ..options.shared import GroupedCommand, output_options

FORMATS = ("table", "json", "markdown")


@click.command("actuals", cls=GroupedCommand)
@click.argument("run", metavar="RUN")
@output_options(*FORMATS)
def command(run: str, form: str | None, out_file: str | None, quiet: bool) -> None:
    """Show what a run took beside what its plan predicted, part by part.

    RUN is the folder of results that `gpuplan run` named, or its record.json.
    """
    from ... import api
    from ..render.actuals import render_lines, render_markdown
    from ..render.text.columns import to_text
    from ..terminal.output import chosen_format, screen_for, write_output

    answer = api.actuals(run)
    form = chosen_format(form, out_file, FORMATS)
    if form == "json":
        text = answer.model_dump_json(indent=2) + "\n"
    elif form == "markdown":
        text = render_markdown(answer)
    else:
        text = to_text(render_lines(answer), colour=screen_for(out_file).color)
    write_output(text, out_file)
