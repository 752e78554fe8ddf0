"""`gpuplan export-weights`: the weights of a run as safetensors or a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...launcher.runner.weights.formats import DTYPES, FORMATS
from ..options.shared import GroupedCommand, OneOf, option

if TYPE_CHECKING:
    from ...launcher.runner.weights.formats import WeightDtype, WeightFormat

PRINTED = ("table", "json")


@click.command("export-weights", cls=GroupedCommand)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@option(
    "Output",
    "--to",
    "form",
    type=OneOf(FORMATS),
    required=True,
    help="safetensors: the names of the model; huggingface: with a config.json, for"
    " from_pretrained.",
)
@option(
    "Checkpoints",
    "--checkpoint",
    metavar="newest|best|STEP",
    default="newest",
    show_default=True,
    help="Of the newest step, of the evaluation with the lowest loss, or of this step.",
)
@option(
    "Output",
    "--dtype",
    type=OneOf(DTYPES),
    help="Of floating-point weights; default: as they were trained.",
)
@option(
    "Output",
    "-o",
    "--out-dir",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder to make, in whole or not at all; default: weights-step-… in that of the run.",
)
@option(
    "Output",
    "--format",
    "printed",
    type=OneOf(PRINTED),
    default=PRINTED[0],
    show_default=True,
    help="Output format.",
)
def command(
    run: Path,
    form: WeightFormat,
    checkpoint: str,
    dtype: WeightDtype | None,
    folder: Path | None,
    printed: str,
) -> None:
    """Write the weights of a run of gpuplan's own runner, without its optimizer (docs/running.md).

    RUN is the folder of results, or one of its checkpoints. The checkpoint of any layout is read,
    a few tensors at a time. Tied weights are written once; more than 5 GB are dealt to several
    files with an index. Adapters of --lora are merged for huggingface.

    \b
    Examples:
      gpuplan export-weights first --to safetensors
      gpuplan export-weights runs/tuned --to huggingface --checkpoint best -o tuned
    """  # noqa: D301
    from ... import api
    from ..terminal.output import write_output

    written = api.export_weights(run, form, folder=folder, checkpoint=checkpoint, dtype=dtype)
    if printed == "json":
        write_output(written.model_dump_json(indent=2) + "\n")
    else:
        from ..render.runs.weights import render_weights

        write_output(render_weights(written))
