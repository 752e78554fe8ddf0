"""`gpuplan init`: a model file to start from, or one around a class that exists already."""

from __future__ import annotations

from pathlib import Path

import click

from ...catalog.errors import UsageError
from ..options.shared import GroupedCommand, option

DEFAULT_FILE = "model.py"
DEFAULT_FILE_FROM = "gpuplan_model.py"


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
    from ..render import model_file

    if source is None:
        target, text = file or Path(DEFAULT_FILE), model_file.example()
    else:
        from ...profiles.user_model.source import model_classes, read_source
        from ...profiles.user_model.spec import parse_model_spec

        spec = parse_model_spec(source)
        if spec.kind != "file":
            raise UsageError(f"--from {source} is not a Python file.", fix="give a .py file.")
        classes = model_classes(read_source(spec.path), spec.path)
        text = model_file.around(model_file.chosen(classes, spec), spec)
        target = file or spec.path.parent / DEFAULT_FILE_FROM
        if target.absolute().parent != spec.path.parent:
            raise UsageError(
                f"{target} is not in the folder of {spec.path.name}, from which it imports.",
                fix=f"leave it out, or name a file in {spec.path.parent}.",
            )
    _write_new(target, text, force=force)
    click.echo(f"Wrote {target}. Look over its shapes, then:  gpuplan estimate {target}")


def _write_new(target: Path, text: str, *, force: bool) -> None:
    from ..terminal.output import write_output

    if target.exists() and not force:
        raise UsageError(
            f"{target} exists already.",
            fix="give another file name, or --force to replace it.",
        )
    write_output(text, target)
