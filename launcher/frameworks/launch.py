"""From a plan and the user's command to a launch under one framework."""

from __future__ import annotations

from collections.abc import Callable

from ...catalog.errors import UsageError, did_you_mean
from ...planner.plan.plan import Plan
from . import accelerate, deepspeed, facts, horovod, lightning, torchrun, whole_node
from .command import parse_command, shell_notes
from .types import FRAMEWORKS, Device, Framework, FrameworkLaunch, Parts, ScriptJob

PARTS: dict[Framework, Callable[[ScriptJob], Parts]] = {
    "torchrun": torchrun.parts,
    "accelerate": accelerate.parts,
    "deepspeed": deepspeed.parts,
    "lightning": lightning.parts,
    "horovod": horovod.parts,
    "jax": whole_node.jax_parts,
    "tensorflow": whole_node.tensorflow_parts,
    "none": whole_node.generic_parts,
}


def launch(
    plan: Plan | None,
    command: str,
    framework: str,
    *,
    nodes: int | None = None,
    per_node: int | None = None,
    device: Device = "gpu",
) -> FrameworkLaunch:
    """Return how to run the user's command under a framework.

    Args:
        plan: What the job was planned as; None leaves everything to the script.
        command: What the user typed: `train.py --flags`, `-m module --flags` or a program.
        framework: One of `FRAMEWORKS`.
        nodes: How many machines; the plan's where it is None, else 1.
        per_node: Accelerators on each; the plan's where it is None, else 1.
        device: `cpu` to compute on processors, as a rehearsal on this machine does.

    Raises:
        UsageError: no such framework, a command that cannot be read, a number of accelerators that
            is not the plan's, or a layout that the framework does not have.
    """
    name = _framework(framework)
    target = parse_command(command)
    nodes, per_node = _size(plan, nodes, per_node)
    job = ScriptJob(plan=plan, target=target, nodes=nodes, per_node=per_node, device=device)
    parts = PARTS[name](job)
    return FrameworkLaunch(
        framework=name,
        job=job,
        ways=parts.ways,
        environment={**facts.variables(job), **parts.environment},
        files=parts.files,
        first_node_only=parts.first_node_only,
        notes=(*parts.notes, *shell_notes(target)),
    )


def _framework(name: str) -> Framework:
    for known in FRAMEWORKS:
        if name.strip().lower() == known:
            return known
    raise UsageError(
        f"There is no framework {name!r}.{did_you_mean(name, FRAMEWORKS)}",
        fix=f"take one of {', '.join(FRAMEWORKS)}.",
    )


def _size(plan: Plan | None, nodes: int | None, per_node: int | None) -> tuple[int, int]:
    if plan is not None:
        nodes = plan.nodes if nodes is None else nodes
        per_node = plan.accelerators // max(nodes, 1) if per_node is None else per_node
    nodes = 1 if nodes is None else nodes
    per_node = 1 if per_node is None else per_node
    if nodes < 1 or per_node < 1:
        raise UsageError(
            f"The launch is for {nodes} nodes of {per_node} accelerators.", fix="take 1 or more."
        )
    if plan is not None and nodes * per_node != plan.layout.accelerators:
        raise UsageError(
            f"{nodes} x {per_node} is {nodes * per_node} accelerators, and layout {plan.layout} is"
            f" for {plan.layout.accelerators}.",
            fix="give as many as the plan has, or plan again with --layout for these.",
        )
    return nodes, per_node
