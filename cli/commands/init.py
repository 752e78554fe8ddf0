"""`gpuplan init`: a model file to start from, or one around a class that exists already."""

from __future__ import annotations

from pathlib import Path

import click

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
@option("Output", "--force", is_flag=True, help="Replace the file if it exists.")
def command(file: Path | None, source: str | None, force: bool) -> None:
    """Write a model file: the functions that gpuplan calls, with comments.

    FILE is model.py unless given. With --from, FILE is gpuplan_model.py beside the class's file:
    it imports the class and builds, feeds and scores it; look over its shapes.
    """
    from ... import api

    target = api.init(file, source=source, force=force)
    click.echo(f"Wrote {target}. Look over its shapes, then:  gpuplan estimate {target}")
