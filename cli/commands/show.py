"""`gpuplan show`: one stored plan in full."""

from __future__ import annotations

import click

from ..options.shared import GroupedCommand, output_options

FORMATS = ("table", "json", "markdown")


@click.command("show", cls=GroupedCommand)
@click.argument("plan_id", metavar="[PLAN-ID]", required=False)
@output_options(*FORMATS)
def command(plan_id: str | None, form: str | None, out_file: str | None, quiet: bool) -> None:
    """Show a stored plan in full: its step, its memory, its cost, and where each number comes from.

    PLAN-ID is as `gpuplan estimate` and `gpuplan plans` print it, or its first characters; without
    it, the recommended plan of the last estimate in this folder.
    """
    from ... import api
    from ..render.plans.explain import render_plan
    from ..render.text.columns import comfortable, to_text
    from ..render.text.folded import folded
    from ..terminal.output import chosen_format, screen_for, write_output

    kept = api.kept_plan(plan_id)
    form = chosen_format(form, out_file, FORMATS)
    if form == "json":
        write_output(kept.plan.model_dump_json() + "\n", out_file)
        return
    if form == "markdown":
        from ..render.plans.explain_markdown import plan_markdown

        text = plan_markdown(kept.plan, kept.estimate, sources=api.sources(kept.plan))
        write_output(text, out_file)
        return
    screen = screen_for(out_file)
    lines = render_plan(
        kept.plan,
        kept.estimate,
        sources=api.sources(kept.plan),
        width=comfortable(screen.width),
    )
    write_output(to_text(folded(lines, screen.width), colour=screen.color), out_file)
