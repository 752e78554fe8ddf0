"""`gpuplan run`: train a model on this machine, as planned or as its file asks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...catalog.errors import UsageError
from ..options.crowded import confirm_crowd
from ..options.groups import OutputOptions
from ..options.shared import Count, Duration, GroupedCommand, OneOf, option, output_options
from ..options.training import NAMES as TRAINING
from ..options.training import TrainingValues, training_options
from ..options.values.checkpoint_every import CheckpointEvery
from ..terminal.output import is_terminal

if TYPE_CHECKING:
    from ...launcher.local.run_request import RunRequest, RunResult

FORMATS = ("table", "json")
DEVICES = ("cuda", "cpu")
LARGEST_PORT = 65_535
ABOUT_THE_MODEL = (
    "steps",
    "micro_batch",
    "seed",
    "workers",
    "synthetic",
    "clip_grad_norm",
    *TRAINING,
    "checkpoint_every",
    "checkpoint_dir",
    "keep",
    "resume",
    "master_port",
    "timeout",
)
"""Options that do not apply to a script of your own."""


@click.command("run", cls=GroupedCommand)
@click.argument("model", required=False)
@option(
    "Work",
    "--param",
    "params",
    multiple=True,
    metavar="KEY=VALUE",
    help="A param for the functions of the file; repeatable.",
)
@option(
    "Work",
    "--plan",
    metavar="PLAN-ID|FILE",
    help="Run this plan: its id, a plan.json, or estimate.json#ID. Without it: DDP over the"
    " processes, with the file's own precision and optimizer.",
)
@option(
    "Work",
    "--steps",
    type=Count(whole=True),
    help="Stop after this many optimizer steps; default: the plan's, else 100.",
)
@option(
    "Machine",
    "--nproc",
    type=Count(whole=True),
    help="Processes, one for each device; default: the plan's, else every CUDA device, else 1.",
)
@option(
    "Machine",
    "-y",
    "--yes",
    is_flag=True,
    help="Start more processes than cores, or a model that the memory here surely cannot hold.",
)
@option(
    "Machine",
    "--device",
    type=OneOf(DEVICES),
    help="Where they run; default: cuda where there is a device, else cpu.",
)
@option(
    "Machine",
    "--master-port",
    type=click.IntRange(1, LARGEST_PORT),
    metavar="PORT",
    help="TCP port at which the processes meet; default: a free one.",
)
@option(
    "Machine",
    "--timeout",
    type=Duration(bare_unit="s"),
    default="600s",
    show_default=True,
    help="Longest time a process waits for the others.",
)
@option(
    "Training",
    "--micro-batch",
    type=Count(whole=True),
    help="Samples per process and pass, without a plan; default: that of make_batch, else 1.",
)
@option(
    "Training",
    "--seed",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    default=0,
    show_default=True,
    help="Random seed of the weights, the order of samples, and the file's own random numbers.",
)
@option(
    "Training",
    "--synthetic",
    is_flag=True,
    help="Train on batches of make_batch(), even if the file has a data set.",
)
@option(
    "Training",
    "--workers",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="Processes that load data, for each rank; default: its cores but one, at most 4.",
)
@option(
    "Training",
    "--clip-grad-norm",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NORM",
    help="Scale gradients down to this norm.",
)
@training_options
@option(
    "Checkpoints",
    "--checkpoint-every",
    type=CheckpointEvery(),
    default="10m",
    show_default=True,
    metavar="STEPS|TIME",
    help="How often to write a checkpoint: 200 (steps), 10m or 600s.",
)
@option(
    "Checkpoints",
    "--checkpoint-dir",
    type=click.Path(),
    metavar="DIR",
    help="Default: checkpoints in the folder of results.",
)
@option(
    "Checkpoints",
    "--keep",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    default=2,
    show_default=True,
    help="How many of the newest checkpoints to keep.",
)
@option(
    "Checkpoints",
    "--resume",
    default="auto",
    show_default=True,
    metavar="auto|never|FOLDER",
    help="Start from the newest checkpoint if there is one, from step 0, or from this checkpoint.",
)
@option(
    "Own script",
    "--command",
    "script",
    metavar="COMMAND",
    help='Run a script of your own instead of MODEL: "train.py --flags".',
)
@option(
    "Own script",
    "--framework",
    help="What starts it: torchrun, accelerate, deepspeed, lightning, horovod, jax, tensorflow"
    " or none; default: torchrun.",
)
@option(
    "Output",
    "--out-dir",
    type=click.Path(),
    metavar="DIR",
    help="Folder of results; default: a new one in gpuplan-runs.",
)
@option(
    "Output",
    "-v",
    "--verbose",
    is_flag=True,
    help="Show the output of torchrun and of every process, and the full traceback of a failure.",
)
@option(
    "Model file",
    "--input",
    "inputs",
    multiple=True,
    metavar="SHAPE[:DTYPE]",
    help="One input tensor, for MODEL.py:ClassName; without the batch, as 3,224,224.",
)
@output_options(*FORMATS)
@click.pass_context
def command(context: click.Context, model: str | None, **options: Any) -> int:
    """Train MODEL on this machine, by a plan or by what the file itself asks (docs/running.md).

    The processes are started by torchrun, NCCL between GPUs and gloo between processors. Ctrl-C
    and SIGTERM end the run after a checkpoint; the same command with the same --out-dir continues.

    \b
    Examples:
      gpuplan run model.py --nproc 2 --steps 200 --out-dir runs/first
      gpuplan run model.py --plan 24d0a27b1e
      gpuplan run --command "train.py --lr 3e-4" --framework accelerate --nproc 2
    """  # noqa: D301
    asked = RunOptions(**options)
    confirm_crowd(asked.nproc, yes=asked.yes)
    if asked.script is not None:
        return _run_script(context, model, asked, asked.script)
    if model is None:
        raise click.UsageError("Name the MODEL, or give --command with a script.", context)
    if asked.framework is not None:
        raise UsageError(
            f"--framework {asked.framework} is for a script of your own.",
            fix='give the script with --command "train.py --flags", or leave --framework out.',
        )
    return _run_model(model, asked)


@dataclass(frozen=True, kw_only=True)
class RunOptions(TrainingValues, OutputOptions):
    """What the options of `gpuplan run` hold."""

    params: tuple[str, ...]
    """As typed: `key=value`."""
    plan: str | None
    steps: int | None
    nproc: int | None
    yes: bool
    device: str | None
    master_port: int | None
    timeout: float
    """Seconds."""
    micro_batch: int | None
    seed: int
    synthetic: bool
    workers: int | None
    clip_grad_norm: float | None
    checkpoint_every: tuple[int | None, float | None]
    """Steps, or seconds."""
    checkpoint_dir: str | None
    keep: int
    resume: str
    script: str | None
    framework: str | None
    out_dir: str | None
    verbose: bool
    inputs: tuple[str, ...]


def _run_model(model: str, asked: RunOptions) -> int:
    from ... import api
    from ...catalog.errors import GpuplanError
    from ...profiles.user_model.spec import parse_params
    from ..terminal.output import chosen_format, refuse_closed, screen_for, write_output

    refuse_closed(asked.out_file)  # Not after hours of training.
    out_file = asked.out_file
    request = _request(asked)
    try:
        result = api.run(
            model,
            request,
            plan=asked.plan,
            params=parse_params(asked.params),
            inputs=asked.inputs,
            on_note=_teller(asked.quiet),
        )
    except GpuplanError:
        _clear_line()
        raise
    if chosen_format(asked.form, out_file, FORMATS) == "json":
        import json

        write_output(json.dumps(result.record, indent=1) + "\n", out_file)
    else:
        from ..render.runs.run import render_result
        from ..render.text.columns import to_text

        lines = render_result(result)
        write_output(to_text(lines, colour=screen_for(out_file).color), out_file)
    return _exit_code(result)


def _request(asked: RunOptions) -> RunRequest:
    from ...launcher.local.run_request import RunRequest
    from ...launcher.runner.job import CheckpointPolicy

    steps, seconds = asked.checkpoint_every
    return RunRequest(
        nproc=asked.nproc,
        steps=asked.steps,
        out_dir=None if asked.out_dir is None else Path(asked.out_dir).expanduser(),
        micro_batch=asked.micro_batch,
        seed=asked.seed,
        device=asked.device,
        workers=asked.workers,
        synthetic=asked.synthetic,
        clip_grad_norm=asked.clip_grad_norm,
        training=asked.training(),
        checkpoint=CheckpointPolicy(
            every_steps=steps,
            every_s=seconds,
            keep=asked.keep,
            resume=asked.resume,
            folder=asked.checkpoint_dir,
        ),
        master_port=asked.master_port,
        timeout_s=asked.timeout,
        verbose=asked.verbose,
        quiet=asked.quiet,
        anyway=asked.yes,
    )


def _run_script(context: click.Context, model: str | None, asked: RunOptions, script: str) -> int:
    from ... import api

    if model is not None:
        raise UsageError(
            f"Both MODEL ({model}) and --command are given.",
            fix="give one of them: a model file for gpuplan to train, or a script that trains.",
        )
    for name in (*ABOUT_THE_MODEL, "params", "inputs"):
        if _is_typed(context, name):
            flag = "--" + {"params": "param", "inputs": "input"}.get(name, name).replace("_", "-")
            raise UsageError(
                f"{flag} applies to a model file only; your own script does not get it.",
                fix=f"leave {flag} out, or put it among the words of --command.",
            )
    out_dir = asked.out_dir
    return api.run_script(
        script,
        asked.framework or "torchrun",
        plan=asked.plan,
        nproc=asked.nproc,
        device=asked.device,
        folder=None if out_dir is None else Path(out_dir).expanduser(),
        on_note=_teller(asked.quiet),
    )


def _is_typed(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE


def _teller(quiet: bool) -> Callable[[str], None]:
    def tell(text: str) -> None:
        if not quiet:
            _clear_line()
            click.echo(f"gpuplan: {text}", err=True)

    return tell


def _clear_line() -> None:
    """Clear the progress line, which has no end of line on a terminal."""
    if is_terminal(sys.stderr):
        click.echo("\r\x1b[K", err=True, nl=False)


def _exit_code(result: RunResult) -> int:
    """Return 130 after Ctrl-C; a run that was told to stop, and did, ended well."""
    import signal

    return 128 + signal.SIGINT if result.stopped_by == signal.SIGINT else 0
