"""`gpuplan profile`: what one training step computes, reads and keeps, on no hardware yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...catalog.errors import UsageError
from ...catalog.vocabulary import OPTIMIZERS, PRECISIONS, RECOMPUTES
from ..options.shared import Count, GroupedCommand, OneOf, model_options, option, output_options
from ..terminal.progress import progress, progress_bar

if TYPE_CHECKING:
    from ...catalog.vocabulary import Recompute
    from ...profiles.measured import DeviceKind, MeasuredProfile
    from ...profiles.profile import Profile

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
def command(
    model: str,
    params: tuple[str, ...],
    inputs: tuple[str, ...],
    timeout: float,
    no_cache: bool,
    precision: str | None,
    micro_batch: int | None,
    recompute: Recompute,
    optimizer: str | None,
    measure: bool,
    device: DeviceKind | None,
    steps: int | None,
    largest_micro_batch: bool,
    verbose: bool,
    form: str | None,
    out_file: str | None,
    quiet: bool,
) -> None:
    """Show what one training step of MODEL computes and keeps in memory.

    MODEL is a file with build_model() and make_batch(batch_size) (see docs/model-file.md),
    MODEL.py:ClassName with --input, hf:FOLDER for a Hugging Face config, or a Profile written by
    this command. Nothing is trained, no weights are made, and no GPU is needed, unless you ask for
    --measure: then a few real steps run on this machine.
    """
    from ... import api
    from ...profiles.profile import NUMERICS_OF_PRECISION
    from ...profiles.user_model.spec import parse_params
    from ..terminal.notices import show_output_of_file, warnings_to_stderr
    from ..terminal.output import chosen_format, write_output

    _check_measuring(measure, device, steps, largest_micro_batch, optimizer)
    if measure:
        from ...profiles.measure.parent import DEFAULT_STEPS, MeasureRequest

        request = MeasureRequest(
            device=device,
            precision=precision,
            micro_batch=micro_batch,
            steps=steps or DEFAULT_STEPS,
            recompute=recompute,
            largest_micro_batch=largest_micro_batch,
        )
        with progress_bar(quiet=quiet) as show, warnings_to_stderr(quiet=quiet):
            measured = api.measure(
                model,
                request,
                params=parse_params(params),
                inputs=inputs,
                timeout_s=timeout,
                use_cache=not no_cache,
                on_progress=show,
                on_output=show_output_of_file if verbose else None,
            )
        form = chosen_format(form, out_file, FORMATS)
        write_output(_measured(measured, form, out_file), out_file)
        return
    with progress(f"Tracing {model} …", quiet=quiet), warnings_to_stderr(quiet=quiet):
        traced = api.profile(
            model,
            params=parse_params(params),
            inputs=inputs,
            numerics=None if precision is None else (NUMERICS_OF_PRECISION[precision],),
            optimizer=optimizer,
            timeout_s=timeout,
            use_cache=not no_cache,
            on_output=show_output_of_file if verbose else None,
        )
    if chosen_format(form, out_file, FORMATS) == "json":
        write_output(traced.model_dump_json() + "\n", out_file)
        return
    text = _table(
        traced,
        precision=precision or traced.file_precision or "fp32",
        micro_batch=micro_batch or traced.default_micro_batch or 1,
        recompute=recompute,
        out_file=out_file,
    )
    write_output(text, out_file)


def _check_measuring(
    measure: bool,
    device: str | None,
    steps: int | None,
    largest_micro_batch: bool,
    optimizer: str | None,
) -> None:
    """Raise for options that only mean something with --measure, or only without it."""
    given = {"--device": device, "--steps": steps, "--largest-micro-batch": largest_micro_batch}
    for name, value in given.items():
        if value and not measure:
            raise UsageError(f"{name} is about real steps.", fix="add --measure.")
    if measure and optimizer:
        raise UsageError(
            f"--optimizer {optimizer} cannot be measured: real steps run the file's own optimizer.",
            fix="return it from build_optimizer() in the file.",
        )


def _measured(measured: MeasuredProfile, form: str, out_file: str | None) -> str:
    if form == "json":
        return measured.model_dump_json() + "\n"
    from ..render.measure import render_measured
    from ..render.text.columns import to_text
    from ..terminal.output import screen_for

    return to_text(render_measured(measured), colour=screen_for(out_file).color)


def _table(
    traced: Profile, *, precision: str, micro_batch: int, recompute: Recompute, out_file: str | None
) -> str:
    from ...profiles.analysis.caching_allocator import replay
    from ...profiles.analysis.costliest_kernels import costliest_kernels, phase_at, step_flops
    from ...profiles.passes.recompute import recomputed
    from ...profiles.profile import NUMERICS_OF_PRECISION
    from ..render.profile import render_profile
    from ..render.text.columns import to_text
    from ..terminal.output import screen_for

    numerics = NUMERICS_OF_PRECISION[precision]
    if numerics not in traced.numerics():
        raise UsageError(
            f"The profile holds no trace for {precision}; it holds {', '.join(traced.numerics())}.",
            fix="give the model file itself, or leave --precision out.",
        )
    step = recomputed(traced.step(numerics), traced, recompute)
    memory = replay(step, micro_batch)
    lines = render_profile(
        traced,
        precision=precision,
        micro_batch=micro_batch,
        recompute=recompute,
        memory=memory,
        peak_phase=phase_at(step, memory.peak_tick),
        kernels=costliest_kernels(step, micro_batch),
        flops=step_flops(step, micro_batch),
    )
    return to_text(lines, colour=screen_for(out_file).color)
