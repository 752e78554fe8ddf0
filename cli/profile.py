"""`gpuplan profile`: what one training step computes, reads and keeps, on no hardware yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..catalog.errors import UsageError
from ..planner.plan import PRECISIONS
from .estimate import OPTIMIZERS, RECOMPUTES
from .options import (
    Count,
    GroupedCommand,
    OneOf,
    model_options,
    option,
    output_options,
)
from .progress import progress

if TYPE_CHECKING:
    from ..profiles.profile import Profile, Recompute

FORMATS = ("table", "json")


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
    verbose: bool,
    form: str | None,
    out_file: str | None,
    quiet: bool,
) -> None:
    """Show what one training step of MODEL computes and keeps in memory.

    MODEL is a file with build_model() and make_batch(batch_size) (see docs/model-file.md),
    MODEL.py:ClassName with --input, hf:FOLDER for a Hugging Face config, or a Profile written by
    this command. Nothing is trained, no weights are made, and no GPU is needed.
    """
    from .. import api
    from ..profiles.profile import NUMERICS_OF_PRECISION
    from ..profiles.spec import parse_params
    from .notices import show_output_of_file, warnings_to_stderr
    from .output import chosen_format, write_output

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


def _table(
    traced: Profile, *, precision: str, micro_batch: int, recompute: Recompute, out_file: str | None
) -> str:
    from ..profiles.allocator import replay
    from ..profiles.highlights import costliest_kernels, phase_at, step_flops
    from ..profiles.profile import NUMERICS_OF_PRECISION
    from ..profiles.recompute import recomputed
    from .output import screen_for
    from .render.columns import to_text
    from .render.profile import render_profile

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
