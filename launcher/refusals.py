"""What is not launched: a plan nobody could run, results that would be lost, a bill too high."""

from __future__ import annotations

from decimal import Decimal

from ..catalog.errors import LimitError, NoFeasiblePlanError, UsageError
from ..planner.launch_cost import LaunchCost
from ..planner.plan import Plan
from ..profiles.spec import ModelSpec
from .project import Project, needed_packages
from .request import LaunchRequest, refuse_keys, refuse_repeats


def refuse_request(plan: Plan, request: LaunchRequest) -> None:
    """Refuse what contradicts itself or the plan, before any price is looked up.

    Raises:
        UsageError: results would be lost, two buckets are put in one place, or a key is given.
        NoFeasiblePlanError: gpuplan's runner does not run the plan.
    """
    _refuse_unrunnable(plan, request)
    _refuse_loss(plan, request)
    refuse_repeats(request.data)
    for option, text in (("--command", request.command), ("--setup", request.setup)):
        refuse_keys(text or "", option)


def refuse_dear(cost: LaunchCost, limit_usd: Decimal | None) -> None:
    """Refuse a launch that at worst costs more than is allowed; None allows everything.

    Raises:
        UsageError: there is a limit, and how long the job runs is not known.
        LimitError: the worst case is above it.
    """
    if limit_usd is None:
        return
    if cost.usd_worst is None:
        raise UsageError(
            "How long the job runs is not known, so --max-cost cannot be held.",
            fix="give --steps, or estimate with an amount of work.",
        )
    if cost.usd_worst > limit_usd:
        raise LimitError(
            f"At worst this costs ${cost.usd_worst:,.2f}, more than --max-cost ${limit_usd:,.2f}"
            f" (expected: ${cost.usd_expected:,.2f}).",
            fix="choose a cheaper plan, fewer steps or --spot, or allow more.",
        )


def refuse_missing_packages(
    spec: ModelSpec | None, project: Project, request: LaunchRequest
) -> None:
    """Refuse a job that would fail on its first line, on machines that are paid for.

    Raises:
        UsageError: the model imports packages that nothing would install.
    """
    brings_own = request.setup is not None or (request.image or "").startswith("docker:")
    if spec is None or brings_own or project.environment.found is not None:
        return
    needed = needed_packages(spec)
    if needed:
        raise UsageError(
            f"{spec.text} needs {', '.join(needed)}, and no file of {project.workdir} says which"
            " packages to install.",
            fix="write a requirements.txt there, or give --setup or --image docker:….",
        )


def _refuse_unrunnable(plan: Plan, request: LaunchRequest) -> None:
    if request.command is None and (plan.runnable is False or plan.needs_port):
        raise NoFeasiblePlanError(
            f"gpuplan's runner does not run plan {plan.id}:"
            f" {plan.why_not_runnable or 'it needs a port to XLA.'}",
            fix='launch a script of your own with --command "train.py …" --framework …, or choose'
            " another plan.",
        )


def _refuse_loss(plan: Plan, request: LaunchRequest) -> None:
    """Refuse a launch whose results would go with the machines."""
    if request.outputs is None and request.fetch is None:
        raise UsageError(
            "The machines go when the job is done, and checkpoints and results would go with them.",
            fix="give --outputs s3://bucket/folder, or for one node --fetch FOLDER to have them"
            " brought here first.",
        )
    if request.outputs is not None and request.fetch is not None:
        raise UsageError("--outputs and --fetch are both given.", fix="give one of them.")
    if request.fetch is not None and request.command is None and plan.nodes > 1:
        raise UsageError(
            f"The {plan.nodes} nodes write one checkpoint together, and --fetch brings what is on"
            " the first.",
            fix="give --outputs s3://bucket/folder, which all nodes share.",
        )
    if request.fetch is not None and request.buys_spot(plan):
        raise UsageError(
            "A spot machine may go at any time, with what has not been fetched yet.",
            fix="give --outputs s3://bucket/folder, or --on-demand.",
        )
