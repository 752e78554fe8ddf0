"""The options of `gpuplan launch`, as click declares them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from .shared import Count, Dollars, Duration, F, OneOf, list_option, option, with_options
from .training import OPTIONS as TRAINING
from .values.checkpoint_every import CheckpointEvery

WHOLE = Count(whole=True)


class Share(click.ParamType):
    """A part of the whole: 30% or 0.3, as a fraction."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the fraction, above 0 and at most 1."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(\d*\.?\d+)\s*(%?)\s*", str(value))
        share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
        if not 0 < share <= 1:
            self.fail(f"{value!r} is not a share; write it as 30% or 0.3.", param, ctx)
        return share


LIMITS = (
    option(
        "Money",
        "--project-limit",
        type=Dollars(),
        help="Limit on the cost of all launches of the project.",
    ),
    option(
        "Money",
        "--owner-limit",
        type=Dollars(),
        help="Limit on the cost of all launches of the owner.",
    ),
    option(
        "Money",
        "--month-limit",
        type=Dollars(),
        help="Limit on what all launches cost in this month.",
    ),
)
"""Limits on what is spent plus the worst case of open launches; usually stored as settings."""
OPTIONS = (
    option(
        "Work",
        "--model",
        metavar="MODEL",
        help="The model, for a plan from a file; a stored plan has its own.",
    ),
    option(
        "Work",
        "--param",
        "params",
        multiple=True,
        metavar="KEY=VALUE",
        help="A param for the functions of --model; repeatable.",
    ),
    option("Work", "--steps", type=WHOLE, help="Optimizer steps; default: the plan's."),
    option("Work", "--replan", is_flag=True, help="Estimate again first, with the same question."),
    list_option("Machine", "--provider", help="Take the cheapest plan on one of these providers."),
    list_option(
        "Machine", "--region", help="Try these regions, in this order; default: the plan's."
    ),
    list_option("Machine", "--zone", help="Try these zones of the region, in this order."),
    option(
        "Machine",
        "--infra",
        metavar="INFRA",
        help="A cluster of your own instead of a cloud: k8s/CONTEXT, slurm/CLUSTER or ssh/POOL.",
    ),
    option(
        "Machine",
        "--image",
        metavar="IMAGE",
        help="docker:NAME:TAG, or a machine image of the cloud.",
    ),
    option(
        "Machine",
        "--public-ips",
        is_flag=True,
        help="Several nodes on AWS: give machines public addresses, and so one network interface.",
    ),
    option("Machine", "--disk-size", type=WHOLE, metavar="GB", help="Disk of each node."),
    option(
        "Job",
        "--data",
        multiple=True,
        metavar="BUCKET:PATH",
        help="Mount a bucket on every node, as s3://bucket/folder:/data; repeatable.",
    ),
    option(
        "Job",
        "--outputs",
        metavar="BUCKET",
        help="Where checkpoints and results go, as s3://bucket/folder.",
    ),
    option(
        "Job",
        "--shared",
        metavar="FOLDER",
        help="Where they go instead: a folder that all nodes share already, as /mnt/nfs/runs.",
    ),
    option(
        "Job",
        "--fetch",
        type=click.Path(file_okay=False),
        metavar="FOLDER",
        help="Copy results here before the machines are torn down; one node, no spot.",
    ),
    option(
        "Job",
        "--workdir",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="The code to send; default: this folder, else the model's.",
    ),
    option(
        "Job",
        "--setup",
        metavar="SHELL",
        help="Shell lines that install the environment; default: from uv.lock, requirements.txt or"
        " pyproject.toml, with the torch build that the node's driver runs.",
    ),
    option(
        "Job",
        "--env",
        "variables",
        multiple=True,
        metavar="KEY=VALUE",
        help="A variable of the job; repeatable.",
    ),
    option(
        "Job",
        "--secret",
        "secrets",
        multiple=True,
        metavar="NAME",
        help="A secret variable, by name only: SkyPilot takes its value from your shell.",
    ),
    option(
        "Job",
        "--project",
        metavar="NAME|FILE",
        help="Project the cost belongs to: a name, or its gpuplan.yaml, whose limits are obeyed;"
        " default: the gpuplan.yaml here, else the folder's name.",
    ),
    option("Job", "--owner", metavar="NAME", help="Owner written in the labels; default: you."),
    option(
        "Job",
        "--checkpoint-every",
        type=CheckpointEvery(),
        metavar="STEPS|TIME",
        help="How often gpuplan's runner writes a checkpoint: 200, 10m; default: as"
        " often as costs least with the failures that are expected, 1 to 30 minutes.",
    ),
    option(
        "Job",
        "--synthetic",
        is_flag=True,
        help="Train on batches of make_batch(), not on the data set: nothing useful is learned.",
    ),
    *TRAINING,
    option(
        "Job",
        "--autodown",
        type=click.IntRange(0, 1440),
        metavar="MINUTES",
        help="Idle time after the job until the machines are torn down, if no command follows"
        " it; default: 5, or 60 with --fetch.",
    ),
    option(
        "Own script",
        "--command",
        "script",
        metavar="COMMAND",
        help='Run a script of your own on the plan\'s machines: "train.py --flags".',
    ),
    option(
        "Own script",
        "--framework",
        help="What starts it: torchrun, accelerate, deepspeed, lightning, horovod, jax, tensorflow"
        " or none; default: torchrun.",
    ),
    option(
        "Money", "--spot/--on-demand", default=None, help="How to buy; default: as the plan does."
    ),
    option(
        "Money",
        "--pricebook",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Your own terms, in place of those of the plan (docs/pricebook.md).",
    ),
    option(
        "Money",
        "--max-cost",
        type=Dollars(),
        help="Stop the run, after a checkpoint, before it costs more: 400, 2k. A run that is"
        " expected to cost more is refused.",
    ),
    option(
        "Money", "--max-hours", type=Count(), help="The same limit in hours that the machines run."
    ),
    option(
        "Money",
        "--max-hourly-cost",
        type=Dollars(),
        help="Refuse machines that cost more an hour, in any place where they are tried.",
    ),
    option(
        "Money",
        "--deadline",
        type=Duration(),
        help="Finish within this time: 12h, 3d. The run moves from spot to on-demand machines when"
        " there is no time left for another preemption.",
    ),
    *LIMITS,
    option(
        "Guard",
        "--min-gpu-utilization",
        type=Share(),
        metavar="SHARE",
        help="Stop a run whose GPUs are less busy than this: 30%.",
    ),
    option(
        "Guard",
        "--idle-for",
        type=Duration(),
        default="15m",
        show_default=True,
        help="How long they must be less busy than that.",
    ),
    option(
        "Guard",
        "--on-projection",
        type=OneOf(("ask", "stop", "continue")),
        default="ask",
        show_default=True,
        help="What to do when the first steps show that the run will cost more than predicted.",
    ),
    option(
        "Guard",
        "--smoke",
        is_flag=True,
        help="Run only the first steps, print the projected cost of the whole run, and tear down.",
    ),
    option(
        "Output",
        "--dryrun",
        is_flag=True,
        help="Print the task and what it costs; write nothing, rent nothing.",
    ),
    option("Output", "-y", "--yes", is_flag=True, help="Rent without asking."),
    option("Output", "--detach", is_flag=True, help="Return once the job is submitted."),
    option(
        "Machine",
        "--check-capacity/--no-check-capacity",
        default=None,
        help="Ask the cloud first whether your account can start the machines; refuse where it"
        " says no. Default: before machines are rented, not for --dryrun.",
    ),
    option(
        "Machine",
        "--any-plan",
        is_flag=True,
        help="Where there is no capacity, take the next-best plan of the estimate.",
    ),
)


def launch_options(command: F) -> F:
    """Add all of them to a command."""
    return with_options(OPTIONS, command)
