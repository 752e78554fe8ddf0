"""`gpuplan validate`: predict recorded runs and show how far off the predictions are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options.curves import curves_option, given_curves
from ..options.shared import GroupedCommand, list_option, option, output_options

if TYPE_CHECKING:
    from ...planner.validation.folds import Protocol

FORMATS = ("table", "json", "csv", "markdown")
HOLD_OUTS = ("configuration", "source", "accelerator")


@click.command("validate", cls=GroupedCommand)
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@curves_option
@option(
    "Machine",
    "--offers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own machines, where accelerators that the catalogue lacks are described.",
)
@list_option(
    "Machine",
    "--without-curves-of",
    help="Predict these accelerators from their nearest relative, as if not measured.",
)
@option(
    "Machine",
    "--hold-out",
    type=click.Choice(HOLD_OUTS),
    help="Predict every run with constants fitted without the runs of its fold of configurations"
    " (five folds), of its source, or of its accelerator, whose own curves are left out too.",
)
@option(
    "Output",
    "--worst",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="How many of the worst rows to list in table and markdown; json and csv hold every row.",
)
@output_options(*FORMATS)
def command(
    runs: tuple[Path, ...],
    curves: Path | None,
    offers: Path | None,
    without_curves_of: tuple[str, ...],
    hold_out: Protocol | None,
    worst: int,
    form: str | None,
    out_file: str | None,
    quiet: bool,
) -> None:
    """Predict every run of RUNS.jsonl and compare with what it measured.

    A run record is one JSON object a line: the model file and its params, the machine, the layout,
    and the measured step time or peak memory. The errors are shown beside two null models that know
    only FLOPs and peaks. The exit code is 0 whatever the errors are.
    """
    from ... import api
    from ..render.validate import RENDERERS
    from ..terminal.output import chosen_format, write_output

    answer = api.validate(
        runs,
        hold_out=hold_out,
        offers=offers,
        curves=given_curves(curves),
        without_curves_of=without_curves_of,
    )
    if not quiet and any(row.skipped for row in answer.rows):
        count = sum(row.skipped is not None for row in answer.rows)
        click.echo(
            f"{count} of {len(answer.rows)} rows were skipped, each with a reason.", err=True
        )
    write_output(RENDERERS[chosen_format(form, out_file, FORMATS)](answer, worst), out_file)
