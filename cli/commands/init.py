"""`gpuplan init`: a model or project file to start from, or one around a class."""

from __future__ import annotations

from pathlib import Path

import click

from ...catalog.errors import UsageError
from ..options.shared import GroupedCommand, option


@click.command("init", cls=GroupedCommand)
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@option(
    "Model file",
    "--from",
    "source",
    metavar="MODEL.py[:CLASS]",
    help="Write a file around a model class that you have, instead of an example.",
)
@option("Project", "--project", is_flag=True, help="Write a project file for gpuplan report.")
@option("Output", "--force", is_flag=True, help="Replace the file if it exists.")
def command(file: Path | None, source: str | None, project: bool, force: bool) -> None:
    """Write a model file (the functions that gpuplan calls) or a project file, with comments.

    FILE is model.py unless given. With --from, FILE is gpuplan_model.py beside the class's file:
    it imports the class and builds, feeds and scores it; look over its shapes. With --project, FILE
    is gpuplan.yaml: experiments, funding and limits for `gpuplan report`.
    """
    from ... import api

    if project:
        if source is not None:
            raise UsageError(
                "--from is of a model file, and --project writes a project file.",
                fix="give them one after the other.",
            )
        target = api.init_project(file, force=force)
        click.echo(f"Wrote {target}. Look over its experiments, then:  gpuplan report {target}")
        return

    target = api.init(file, source=source, force=force)
    click.echo(f"Wrote {target}. Look over its shapes, then:  gpuplan estimate {target}")
