"""`gpuplan fits`: does one training step fit on this accelerator, and what would make it fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...catalog.errors import NoFeasiblePlanError
from ...catalog.vocabulary import (
    FROZEN_CHOICES,
    OPTIMIZERS,
    PRECISIONS,
    RECOMPUTES,
    FrozenChoice,
    Precision,
    Recompute,
)
from ...planner.plan.layout import Layout
from ..options.estimate import OFFLOADS
from ..options.inputs import InputsOptions, read_inputs
from ..options.question import offload_of
from ..options.shared import (
    Count,
    GroupedCommand,
    LayoutText,
    OneOf,
    list_option,
    model_options,
    option,
    output_options,
)
from ..terminal.progress import progress

if TYPE_CHECKING:
    from ...planner.predict.fits import FitsAnswer

FORMATS = ("table", "json")


@click.command("fits", cls=GroupedCommand)
@model_options
@option(
    "Machine",
    "--on",
    "on",
    required=True,
    metavar="ACCELERATOR",
    help="Any name of one accelerator, A100-40GB or RTX-4090, or several of it: H100:8.",
)
@option(
    "Machine",
    "--offers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own machines, YAML (docs/templates).",
)
@option(
    "Layout",
    "--layout",
    type=LayoutText(),
    help="How the state is split, such as fsdp8; default: dp8 or fsdp8 of 8, whichever fits.",
)
@option(
    "Layout",
    "--micro-batch",
    type=Count(whole=True),
    help="Samples per accelerator in one pass; default: that of make_batch, else 1.",
)
@option("Layout", "--precision", type=OneOf(PRECISIONS), help="Default: the file's own, else fp32.")
@option(
    "Layout",
    "--recompute",
    type=OneOf(RECOMPUTES),
    default="none",
    show_default=True,
    help="What is computed again in the backward pass instead of kept.",
)
@option(
    "Layout",
    "--frozen-precision",
    type=OneOf(FROZEN_CHOICES),
    help="How frozen parameters are kept; default: bf16 if a config says so, else as --precision.",
)
@option(
    "Layout",
    "--optimizer",
    type=OneOf(OPTIMIZERS),
    help="Optimizer to assume instead of the file's own.",
)
@list_option("Layout", "--offload", OneOf(OFFLOADS), help="What to keep in host memory.")
@output_options(*FORMATS)
def command(model: str, **options: Any) -> int:
    """Say whether one training step of MODEL fits in the memory of an accelerator.

    The first word of the answer is Yes or No; the exit code is 0 or 3.
    """
    from ... import api
    from ...api.memory_fit import counted
    from ...catalog.names import assumption_about
    from ..terminal.output import chosen_format, write_output

    asked = FitsOptions(**options)
    on = asked.on
    precision = asked.precision
    # A remedy may be 16-bit autocast, whatever was asked about.
    precisions = () if precision is None else (precision, "bf16-amp")
    name, _ = counted(on)
    machine = api.Machine(accelerators=(name,))
    inputs = read_inputs(model, asked, precisions=precisions, machine=machine)
    with progress("Computing what fits …", quiet=asked.quiet):
        answer = api.fits(
            inputs,
            on,
            precision=precision,
            micro_batch=asked.micro_batch,
            recompute=asked.recompute,
            layout=asked.layout,
            optimizer=asked.optimizer,
            offload=offload_of(asked.offload) or (),
            frozen_precision=asked.frozen_precision,
        )
    assumption = assumption_about(name)
    if assumption and not asked.quiet:
        click.echo(f"Note: {name} is taken as {answer.accelerator}: {assumption}.", err=True)
    form = chosen_format(asked.form, asked.out_file, FORMATS)
    write_output(_rendered(answer, form, asked.out_file), asked.out_file)
    return 0 if answer.fits else NoFeasiblePlanError.exit_code


@dataclass(frozen=True, kw_only=True)
class FitsOptions(InputsOptions):
    """What the options of `gpuplan fits` hold."""

    on: str
    """Any name of one accelerator, or several of it: H100:8."""
    layout: Layout | None
    micro_batch: int | None
    precision: Precision | None
    recompute: Recompute
    frozen_precision: FrozenChoice | None
    optimizer: str | None
    offload: tuple[str, ...]


def _rendered(answer: FitsAnswer, form: str, out_file: str | None) -> str:
    if form == "json":
        return answer.model_dump_json() + "\n"
    from ..render.plans.fits import render_fits
    from ..render.text.columns import comfortable, to_text
    from ..render.text.folded import folded
    from ..terminal.output import screen_for

    screen = screen_for(out_file)
    return to_text(
        folded(render_fits(answer, width=comfortable(screen.width)), screen.width),
        colour=screen.color,
    )
