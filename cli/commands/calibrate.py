"""`gpuplan calibrate`: measure the kernels of this machine's device, or check such a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ...catalog.errors import UsageError
from ..exit_codes import EXIT_INTERRUPTED
from ..options.shared import Count, Duration, GroupedCommand, OneOf, list_option, option
from ..terminal.output import is_terminal

if TYPE_CHECKING:
    from ...catalog.types import Dtype

FORMATS = ("table", "json")
DTYPES = ("bf16", "fp16", "fp32", "tf32", "fp8")


@click.command("calibrate", cls=GroupedCommand)
@option(
    "Machine",
    "--device",
    type=OneOf(("cuda", "cpu")),
    default="cuda",
    show_default=True,
    help="What to measure: the first visible GPU, or the host itself.",
)
@option(
    "Machine",
    "--name",
    metavar="ACCELERATOR",
    help="Its name in the catalogue (gpuplan gpus); default: by the name that the driver gives.",
)
@option(
    "Machine",
    "--offers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own machines, where the accelerator is described if the catalogue lacks it.",
)
@option(
    "Machine",
    "--ranks",
    type=Count(whole=True),
    help="Time collectives among at most this many devices; default: all GPUs, no CPU processes.",
)
@list_option(
    "Work", "--dtype", OneOf(DTYPES), help="Only these; default: all that the device has peaks for."
)
@option(
    "Work",
    "--budget",
    type=Duration(),
    is_eager=True,  # Not a setting: `budget` is kept as money, for estimate.
    help="Longest time to measure; default: 10min, with --quick 1min.",
)
@option("Work", "--quick", is_flag=True, help="Coarse grids only.")
@option(
    "Work",
    "--check",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measure nothing; check this curve file by itself and against the embedded curves.",
)
@option(
    "Work",
    "--from-store",
    is_flag=True,
    help="Measure nothing; move the curves of the accelerators that your own runs were measured on"
    " (with --name one of them), and say the errors before and after.",
)
@option(
    "Output",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write the curves; default: where gpuplan looks for them.",
)
@option(
    "Output",
    "--format",
    "form",
    type=OneOf(FORMATS),
    default="table",
    show_default=True,
    help="How to print the summary.",
)
@option("Output", "-q", "--quiet", is_flag=True, help="No progress and no notes on stderr.")
def command(
    device: Literal["cuda", "cpu"],
    name: str | None,
    offers: Path | None,
    ranks: int | None,
    dtype: tuple[Dtype, ...],
    budget: float | None,
    quick: bool,
    check: Path | None,
    from_store: bool,
    out: Path | None,
    form: str,
    quiet: bool,
) -> int:
    """Measure how fast this machine's kernels are, and store that as a curve file.

    GEMM, attention forward and backward, convolutions, pointwise, norm, softmax, copy, embedding
    and optimizer kernels, and collectives where several devices are visible, coarse grids first: a
    short budget gives a usable file, ten minutes a fine one. Later estimates for that accelerator
    use the file (docs/curves.md). Close other programs on the device first.

    With --from-store the curves are moved by what your own runs and launches measured, as far as
    that predicts runs better which were held out.
    """
    from ... import api
    from ..render.calibrate import render_calibration, render_check

    if from_store:
        from ..render.runs.own_runs import render_own_runs

        _refuse_to_measure()
        click.echo(render_own_runs(api.calibrate_from_store(name=name, out=out), form), nl=False)
        return 0
    if check is not None:
        click.echo(render_check(api.check_curves(check, offers=offers), form), nl=False)
        return 0
    shown = not quiet and is_terminal(sys.stderr)
    try:
        done = api.calibrate(
            device=device,
            name=name,
            dtypes=dtype,
            budget_s=budget,
            quick=quick,
            ranks=ranks,
            offers=offers,
            out=out,
            on_progress=_show if shown else None,
        )
    finally:
        if shown:
            click.echo("\r\033[K", err=True, nl=False)
    click.echo(render_calibration(done, form), nl=False)
    if done.run.ended == "interrupted":
        if not quiet:
            click.echo(f"Interrupted; what was measured is kept in {done.path}.", err=True)
        return EXIT_INTERRUPTED
    return 0


def _refuse_to_measure() -> None:
    """Refuse options of a measurement beside --from-store.

    Raises:
        UsageError: one is on the command line.
    """
    context = click.get_current_context()
    typed = [
        name
        for name in ("device", "offers", "ranks", "dtype", "budget", "quick", "check")
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if typed:
        raise UsageError(
            f"--from-store measures nothing, and --{typed[0]} is given.",
            fix=f"leave --{typed[0]} or --from-store out.",
        )


def _show(done: int, total: int, what: str) -> None:
    click.echo(f"\r\033[K{done}/{total} {what}"[:100], err=True, nl=False)
