"""`gpuplan launch`: a plan as the SkyPilot task that runs it on rented machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..catalog.errors import GpuplanError, UsageError
from .options import Count, Dollars, GroupedCommand, list_option, option, output_options

if TYPE_CHECKING:
    from ..launcher.launch import Prepared
    from ..launcher.request import LaunchRequest

FORMATS = ("yaml", "json")
WHOLE = Count(whole=True)


@click.command("launch", cls=GroupedCommand)
@click.argument("plan_id", metavar="[PLAN-ID|FILE]", required=False)
@option(
    "Work",
    "--model",
    metavar="MODEL",
    help="The model, for a plan from a file; a kept plan knows its own.",
)
@option(
    "Work",
    "--param",
    "params",
    multiple=True,
    metavar="KEY=VALUE",
    help="A param for the functions of --model; repeatable.",
)
@option("Work", "--steps", type=WHOLE, help="Optimizer steps; default: the plan's.")
@option("Work", "--replan", is_flag=True, help="Ask the plan's question again first.")
@list_option("Machine", "--provider", help="Take the cheapest plan on one of these.")
@list_option("Machine", "--region", help="Try these, in this order; default: the plan's.")
@list_option("Machine", "--zone", help="Try these zones of the region, in this order.")
@option(
    "Machine",
    "--image",
    metavar="IMAGE",
    help="docker:NAME:TAG, or a machine image of the cloud.",
)
@option("Machine", "--disk-size", type=WHOLE, metavar="GB", help="Disk of each node.")
@option(
    "Job",
    "--data",
    multiple=True,
    metavar="BUCKET:PATH",
    help="Mount a bucket on every node, as s3://bucket/folder:/data; repeatable.",
)
@option(
    "Job",
    "--outputs",
    metavar="BUCKET",
    help="Where checkpoints and results go, as s3://bucket/folder.",
)
@option(
    "Job",
    "--fetch",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Bring results here before the machines go; one node, no spot.",
)
@option(
    "Job",
    "--workdir",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The code to send; default: this folder, else the model's.",
)
@option(
    "Job",
    "--setup",
    metavar="SHELL",
    help="Lines that make the environment; default: from uv.lock, requirements.txt or"
    " pyproject.toml, with the torch build that the node's driver runs.",
)
@option(
    "Job",
    "--env",
    "variables",
    multiple=True,
    metavar="KEY=VALUE",
    help="A variable of the job; repeatable.",
)
@option(
    "Job",
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME",
    help="A secret variable, by name only: SkyPilot takes its value from your shell.",
)
@option("Job", "--owner", metavar="NAME", help="Who pays, for the labels; default: you.")
@option(
    "Own script",
    "--command",
    "script",
    metavar="COMMAND",
    help='Run a script of your own on the plan\'s machines: "train.py --flags".',
)
@option(
    "Own script",
    "--framework",
    help="What starts it: torchrun, accelerate, deepspeed, lightning, horovod, jax, tensorflow"
    " or none; default: torchrun.",
)
@option("Money", "--spot/--on-demand", default=None, help="How to buy; default: as the plan does.")
@option("Money", "--max-cost", type=Dollars(), help="Refuse what may cost more: 400, 2k.")
@option(
    "Output",
    "--dryrun",
    is_flag=True,
    help="Print the task and what it costs; write nothing, rent nothing.",
)
@output_options(*FORMATS)
def command(plan_id: str | None, **options: Any) -> int:
    """Make a plan the SkyPilot task that runs it on rented machines (docs/launching.md).

    PLAN-ID is as `gpuplan plans` prints it, or a plan's file; without it, the cheapest plan of the
    last estimate made in this folder. This version rents nothing by itself: without --dryrun it
    writes the task with all it sends, and says the line that starts it.

    \b
    Examples:
      gpuplan launch --provider aws --outputs s3://bucket/runs --dryrun
      gpuplan launch 24d0a27b1e --spot --max-cost 400 --outputs s3://bucket/runs --dryrun
      gpuplan launch 24d0a27b1e --fetch results --command "train.py --lr 3e-4"
    """  # noqa: D301
    from .. import api
    from ..profiles.spec import parse_params

    _refuse_contradictions(options)
    prepared = api.launch(
        plan_id,
        _request(options),
        model=options["model"],
        params=parse_params(options["params"]),
        workdir=options["workdir"],
        owner=options["owner"],
        replan=options["replan"],
        dryrun=options["dryrun"],
    )
    if not options["quiet"]:
        _say_money(prepared)
    if not options["dryrun"]:
        raise _not_started(prepared)
    _write(prepared, options)
    return 0


def _refuse_contradictions(options: dict[str, Any]) -> None:
    if options["framework"] is not None and options["script"] is None:
        raise UsageError(
            f"--framework {options['framework']} is for a script of your own.",
            fix='give the script with --command "train.py --flags", or leave --framework out.',
        )
    if options["params"] and options["model"] is None:
        raise UsageError(
            "--param is given without --model; a kept plan knows its params.",
            fix="leave --param out, or estimate with these params.",
        )
    if options["out_file"] is not None and not options["dryrun"]:
        raise UsageError(
            "--out-file is for --dryrun.", fix="add --dryrun, or leave --out-file out."
        )


def _request(options: dict[str, Any]) -> LaunchRequest:
    from ..launcher import request

    fetch, outputs = options["fetch"], options["outputs"]
    return request.LaunchRequest(
        providers=options["provider"],
        spot=options["spot"],
        regions=options["region"],
        zones=options["zone"],
        steps=options["steps"],
        guard=request.GuardRequest(max_cost_usd=options["max_cost"]),
        data=tuple(request.parse_data(text) for text in options["data"]),
        outputs=None if outputs is None else request.parse_outputs(outputs),
        fetch=None if fetch is None else str(Path(fetch).expanduser().absolute()),
        image=None if options["image"] is None else request.parse_image(options["image"]),
        disk_gb=options["disk_size"],
        setup=options["setup"],
        environment=tuple(request.parse_variable(text) for text in options["variables"]),
        secrets=tuple(request.parse_secret(text) for text in options["secrets"]),
        command=options["script"],
        framework=options["framework"],
    )


def _write(prepared: Prepared, options: dict[str, Any]) -> None:
    from .output import chosen_format, write_output

    out_file = options["out_file"]
    if chosen_format(options["form"], out_file, FORMATS) == "json":
        text = prepared.answer().model_dump_json(indent=2) + "\n"
    else:
        text = prepared.task.yaml
    write_output(text, out_file)


def _say_money(prepared: Prepared) -> None:
    from .render.columns import to_text
    from .render.launch import render_launch

    click.echo(to_text(render_launch(prepared), colour=False), err=True, nl=False)


def _not_started(prepared: Prepared) -> GpuplanError:
    return UsageError(
        f"Nothing was rented: this version writes the task, to {prepared.folder / 'task.yaml'}.",
        fix=f"start it yourself, with SkyPilot installed:\n  {prepared.task.command}",
    )
