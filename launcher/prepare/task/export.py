"""A plan as the file of another tool: what starts the training, or the tool's own configuration.

The same text as `gpuplan launch` and `gpuplan run --command` use, without gpuplan on the machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ....catalog.errors import UsageError, did_you_mean
from ....catalog.snapshot import Catalogue
from ....catalog.version import VERSION
from ....catalog.vocabulary import EXPORT_TOOLS, ExportTool
from ....planner.cost.beside_machines.data_cost import LEAST_DISK_GB, SIZED_DISKS
from ....planner.plan.plan import Plan
from ...frameworks import deepspeed
from ...frameworks.accelerate import CONFIG_FILE, precision_words
from ...frameworks.launch import launch
from ...frameworks.shell import DEFAULT_PORT, node_script
from ...frameworks.types import FrameworkLaunch
from ...skypilot.placement import TPU_SLICES, hardware, places
from ...task_file import NO_AUTODOWN, write_tasks
from ..project import Project
from .node_setup import ACTIVATE, setup_script
from .task import FAST_NETWORK, IDLE_DOWN_MINUTES

DEEPSPEED_FILE = "ds_config.json"
"""As DeepSpeed's own documentation calls it."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """One file for one tool."""

    tool: ExportTool
    file_name: str
    """What the tool's users call such a file."""
    text: str
    notes: tuple[str, ...]
    """How it is used, and what the user's script must do itself for the plan to hold."""


@dataclass(frozen=True, kw_only=True)
class ExportJob:
    """What is written, and for which machines."""

    plan: Plan
    command: str
    """What starts the training, as the user types it: `train.py --flags`."""
    project: Project
    catalogue: Catalogue


def export(job: ExportJob, tool: str) -> Exported:
    """Return a plan as the file of another tool.

    Args:
        job: the plan, and what it runs.
        tool: one of `EXPORT_TOOLS`.

    Raises:
        UsageError: there is no such tool, or it cannot carry out the plan: then it is said which
            can.
        PriceError: of the places where SkyPilot would rent, no price is known.
    """
    known: dict[str, ExportTool] = {name: name for name in EXPORT_TOOLS}
    name = known.get(tool.strip().lower())
    if name is None:
        raise UsageError(
            f"{tool!r} is no tool that plans are exported to.{did_you_mean(tool, EXPORT_TOOLS)}",
            fix=f"take one of {', '.join(EXPORT_TOOLS)}.",
        )
    if job.plan.needs_port:
        raise UsageError(
            f"Plan {job.plan.id} is on {job.plan.offer.accelerator}, where torch code runs only"
            " after a port, so no file would start it.",
            fix="export a plan on GPUs.",
        )
    try:
        return _WRITERS[name](job)
    except UsageError as error:
        others = list(_able(job, besides=name))
        if not others:
            raise
        raise UsageError(error.message, fix=f"export it --to {', '.join(others)}.") from error


def _able(job: ExportJob, *, besides: ExportTool) -> Iterator[ExportTool]:
    """Yield the other tools that can carry out the plan."""
    for tool, write in _WRITERS.items():
        try:
            if tool != besides:
                write(job)
                yield tool
        except UsageError:
            continue


def _torchrun(job: ExportJob) -> Exported:
    launched = _launched(job, "torchrun")
    return Exported(
        tool="torchrun",
        file_name="torchrun.sh",
        text=_headed(job.plan, node_script(launched)),
        notes=(
            _run_it(job.plan),
            *launched.notes,
        ),
    )


def _accelerate(job: ExportJob) -> Exported:
    launched = _launched(job, "accelerate")
    text = launched.files[CONFIG_FILE]
    assert isinstance(text, str)
    accum = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
    before = f"{accum}={launched.environment[accum]} " if accum in launched.environment else ""
    where = each = ""
    if job.plan.nodes > 1:
        where = f" --machine_rank RANK --main_process_ip ADDRESS --main_process_port {DEFAULT_PORT}"
        each = f" on each of the {job.plan.nodes} nodes"
    where += "".join(f" {word}" for word in precision_words(launched.job))
    start = f"{before}accelerate launch --config_file {CONFIG_FILE}{where} {job.command}"
    return Exported(
        tool="accelerate",
        file_name=CONFIG_FILE,
        # The keys are those of accelerate 1.15: see launcher/frameworks/accelerate.py.
        text=_headed(job.plan, text),
        notes=(f"start it{each} with: {start}", *launched.notes),
    )


def _deepspeed(job: ExportJob) -> Exported:
    # With the placeholder in the command, no note says how the script finds the file.
    told = replace(job, command=f"{job.command} {deepspeed.PLACEHOLDER}")
    launched = _launched(told, "deepspeed")
    per_node = job.plan.accelerators // job.plan.nodes
    rest = f"{job.command} --deepspeed_config {DEEPSPEED_FILE}"
    start = f"start it with: deepspeed --num_gpus={per_node} {rest}"
    if job.plan.nodes > 1:
        start = (
            f"start it on the first node with: deepspeed --hostfile=hostfile {rest}; hostfile has a"
            f" line `ADDRESS slots={per_node}` for each node, which are reached over SSH"
        )
    return Exported(
        tool="deepspeed",
        file_name=DEEPSPEED_FILE,
        # The keys are those of DeepSpeed 0.19: see launcher/frameworks/deepspeed.py.
        text=json.dumps(deepspeed.deepspeed_config(job.plan), indent=2) + "\n",
        notes=(start, *launched.notes),
    )


def _skypilot(job: ExportJob) -> Exported:
    """Return the task of SkyPilot 0.14 that `gpuplan launch` makes, without guard and timer."""
    plan = job.plan
    spot = plan.offer.purchase == "spot"
    (place, *_) = places(plan, job.catalogue, spot=spot)
    nodes, machine = hardware(plan, place.cloud)
    resources: dict[str, Any] = {"infra": place.infra, **machine}
    if spot:
        resources["use_spot"] = True
    if place.cloud in SIZED_DISKS:
        resources["disk_size"] = LEAST_DISK_GB
    if nodes > 1 and place.cloud in FAST_NETWORK and plan.offer.accelerator not in TPU_SLICES:
        resources["network_tier"] = "best"
    if place.cloud not in NO_AUTODOWN:
        resources["autostop"] = {"idle_minutes": IDLE_DOWN_MINUTES, "down": True}
    launched = _launched(job, "torchrun")
    _, *rest = node_script(launched).splitlines()
    config = {
        "name": f"gpuplan-{plan.id}",
        "workdir": ".",
        "num_nodes": nodes,
        "resources": resources,
        "setup": setup_script(
            job.project.environment,
            job.catalogue.accelerators.get(plan.offer.accelerator),
            with_torch=True,
            image=None,
        ),
        "run": "\n".join([ACTIVATE, *rest, ""]),
    }
    return Exported(
        tool="skypilot",
        file_name="task.yaml",
        text=_headed(plan, write_tasks([config])),
        notes=(
            f"start it with: sky launch -c gpuplan-{plan.id} task.yaml",
            "nothing limits its cost but autostop: gpuplan launch adds a guard, a timer on every"
            " node and a place for results",
            *launched.notes,
        ),
    )


_WRITERS: dict[ExportTool, Callable[[ExportJob], Exported]] = {
    "skypilot": _skypilot,
    "torchrun": _torchrun,
    "deepspeed": _deepspeed,
    "accelerate": _accelerate,
}


def _launched(job: ExportJob, framework: str) -> FrameworkLaunch:
    device = "cpu" if job.plan.offer.is_cpu else "gpu"
    return launch(job.plan, job.command, framework, device=device)


def _headed(plan: Plan, text: str) -> str:
    """Return text with a comment that says which plan it is; a line #! stays the first."""
    comment = f"# gpuplan {VERSION}, plan {plan.id}: {plan.place} ({plan.devices}), {plan.string}\n"
    first, rest = "", text
    if text.startswith("#!"):
        first, _, rest = text.partition("\n")
        first += "\n"
    return f"{first}{comment}{rest}"


def _run_it(plan: Plan) -> str:
    if plan.nodes == 1:
        return (
            "run it on the machine; a model file of gpuplan's needs no script: gpuplan run MODEL"
            f" --plan {plan.id}"
        )
    return (
        f"run it on each of the {plan.nodes} nodes, with NODE_RANK (from 0) and NODE_IPS (all"
        " addresses) set where SkyPilot does not"
    )
