"""`gpuplan profile`: what one training step computes, reads and keeps, on no hardware yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ...catalog.errors import UsageError
from ...catalog.vocabulary import OPTIMIZERS, PRECISIONS, RECOMPUTES, Precision, Recompute
from ..options.groups import ModelOptions, OutputOptions
from ..options.shared import Count, GroupedCommand, OneOf, model_options, option, output_options
from ..terminal.notices import show_output_of_file, warnings_to_stderr
from ..terminal.output import chosen_format, screen_for, write_output
from ..terminal.progress import progress, progress_bar

if TYPE_CHECKING:
    from ...profiles.measured import DeviceKind

FORMATS = ("table", "json")
DEVICES = ("cuda", "cpu")


@click.command("profile", cls=GroupedCommand)
@model_options
@option(
    "Layout",
    "--precision",
    type=OneOf(PRECISIONS),
    help="Default: what the file's own autocast or parameters say, else fp32.",
)
@option(
    "Layout",
    "--micro-batch",
    type=Count(whole=True),
    help="Samples in one step; default: that of make_batch, else 1.",
)
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
    "--optimizer",
    type=OneOf(OPTIMIZERS),
    help="Trace the step with this optimizer instead of the file's.",
)
@option(
    "Measuring",
    "--measure",
    is_flag=True,
    help="Run real steps on this machine and show what they took (docs/measuring.md).",
)
@option(
    "Measuring",
    "--device",
    type=OneOf(DEVICES),
    help="Where they run; default: cuda where there is a device, else cpu.",
)
@option(
    "Measuring",
    "--steps",
    type=Count(whole=True),
    help="How many are measured, after warm-up; default: 20.",
)
@option(
    "Measuring",
    "--largest-micro-batch",
    is_flag=True,
    help="Find the largest micro-batch that runs, by running out of memory.",
)
@output_options(*FORMATS)
def command(model: str, **options: Any) -> None:
    """Show what one training step of MODEL computes and keeps in memory.

    MODEL is a file with build_model() and make_batch(batch_size) (see docs/model-file.md),
    MODEL.py:ClassName with --input, hf:NAME or hf:FOLDER for a Hugging Face config, or a Profile
    written by this command. Nothing is trained, no weights are made, and no GPU is needed, unless
    you ask for --measure: then a few real steps run on this machine.
    """
    asked = ProfileOptions(**options)
    _check_measuring(asked)
    form = chosen_format(asked.form, asked.out_file, FORMATS)
    text = _measured(model, asked, form) if asked.measure else _traced(model, asked, form)
    write_output(text, asked.out_file)


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(ModelOptions, OutputOptions):
    """What the options of `gpuplan profile` hold."""

    precision: Precision | None
    micro_batch: int | None
    recompute: Recompute
    optimizer: str | None
    measure: bool
    device: DeviceKind | None
    steps: int | None
    largest_micro_batch: bool


def _check_measuring(asked: ProfileOptions) -> None:
    """Raise for options that only mean something with --measure, or only without it."""
    given = {
        "--device": asked.device,
        "--steps": asked.steps,
        "--largest-micro-batch": asked.largest_micro_batch,
    }
    for name, value in given.items():
        if value and not asked.measure:
            raise UsageError(f"{name} is about real steps.", fix="add --measure.")
    if asked.measure and asked.optimizer:
        raise UsageError(
            f"--optimizer {asked.optimizer} cannot be measured: real steps run the file's own"
            " optimizer.",
            fix="return it from build_optimizer() in the file.",
        )


def _measured(model: str, asked: ProfileOptions, form: str) -> str:
    """Return what real steps of the model took, as JSON or as a table."""
    from ... import api
    from ...profiles.measure.measure import DEFAULT_STEPS, MeasureRequest
    from ...profiles.user_model.spec import parse_params
    from ..render.measure import render_measured
    from ..render.text.columns import to_text
    from ..render.text.folded import folded

    request = MeasureRequest(
        device=asked.device,
        precision=asked.precision,
        micro_batch=asked.micro_batch,
        steps=asked.steps or DEFAULT_STEPS,
        recompute=asked.recompute,
        largest_micro_batch=asked.largest_micro_batch,
    )
    with progress_bar(quiet=asked.quiet) as show, warnings_to_stderr(quiet=asked.quiet):
        measured = api.measure(
            model,
            request,
            params=parse_params(asked.params),
            lora=asked.lora,
            inputs=asked.inputs,
            assume=asked.assumed,
            timeout_s=asked.timeout,
            use_cache=not asked.no_cache,
            on_progress=show,
            on_output=show_output_of_file if asked.verbose else None,
        )
    if form == "json":
        return measured.model_dump_json() + "\n"
    screen = screen_for(asked.out_file)
    return to_text(folded(render_measured(measured), screen.width), colour=screen.color)


def _traced(model: str, asked: ProfileOptions, form: str) -> str:
    """Return the traced Profile as JSON, or a table of one step of it."""
    from ... import api
    from ...profiles.user_model.spec import parse_params
    from ..render.profile import render_profile
    from ..render.text.columns import comfortable, to_text
    from ..render.text.folded import folded

    quiet = asked.quiet
    with progress(f"Tracing {model} …", quiet=quiet) as say, warnings_to_stderr(quiet=quiet):
        spec = api.model(
            model,
            params=parse_params(asked.params),
            lora=asked.lora,
            inputs=asked.inputs,
            assume=asked.assumed,
            timeout_s=asked.timeout,
        )
        traced = api.profile(
            spec,
            precision=asked.precision,
            optimizer=asked.optimizer,
            use_cache=not asked.no_cache,
            on_output=show_output_of_file if asked.verbose else None,
            on_slow=say,
        )
    if form == "json":
        return traced.model_dump_json() + "\n"
    step = api.step_summary(
        traced,
        precision=asked.precision,
        micro_batch=asked.micro_batch,
        recompute=asked.recompute,
        model=spec,
    )
    screen = screen_for(asked.out_file)
    return to_text(
        folded(render_profile(traced, step, width=comfortable(screen.width)), screen.width),
        colour=screen.color,
    )
