"""Refusals before a launch: a plan that does not run, results that would be lost, a high bill."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path, PurePosixPath

from ...catalog.errors import LimitError, NoFeasiblePlanError, UsageError
from ...catalog.units import SECONDS_PER_HOUR
from ...planner.cost.launch_cost import LaunchCost
from ...planner.plan.plan import Plan
from ...profiles.user_model.failures import BUILT_FOR_CUDA
from ...profiles.user_model.file_text import read_source, required_imports
from ...profiles.user_model.spec import ModelSpec
from ..frameworks.command import parse_command
from ..skypilot.placement import NO_BUCKETS, Place
from ..store.launch_record import PricedPlace
from ..task_file import NO_AUTODOWN
from .missing import MissingError, list_of_packages, place_for_results, refuse_all
from .project import Project, needed_packages
from .request import GuardRequest, LaunchRequest, refuse_keys, refuse_repeats

FLASH_IN_TRANSFORMERS = re.compile(r"""attn_implementation["']?\s*[=:]\s*["']flash_attention_\d""")
"""How a file tells transformers to attend with the flash-attn package."""


def refuse_request(
    plan: Plan,
    request: LaunchRequest,
    *,
    needs: Sequence[Callable[[], object]] = (),
    later: Sequence[Callable[[], object]] = (),
) -> None:
    """Refuse what contradicts itself or the plan, and say at once all that is missing.

    Args:
        plan: what is launched.
        request: how.
        needs: further checks that raise UsageError where something is not there yet; all that is
            missing is said at once.
        later: as `refuse_all` has it.

    Raises:
        UsageError: results would be lost, two buckets are put in one place, or a key is given.
        NoFeasiblePlanError: gpuplan's runner does not run the plan.
    """
    _refuse_unrunnable(plan, request)
    for option, text in (("--command", request.command), ("--setup", request.setup)):
        refuse_keys(text or "", option)  # First: what follows may repeat the line that was typed.
    _refuse_for_own_script(request)
    refuse_all([lambda: _refuse_loss(plan, request), *needs], later=later)
    refuse_repeats(request.data)


def refuse_unmounted(cloud: str, request: LaunchRequest) -> None:
    """Refuse buckets where SkyPilot mounts none.

    Raises:
        UsageError: one is asked for there.
    """
    if cloud in NO_BUCKETS and (request.outputs is not None or request.data):
        raise UsageError(
            f"SkyPilot mounts no buckets on {cloud}.",
            fix="give --fetch FOLDER for the results, and let your script read its data itself.",
        )


def refuse_no_autodown(cloud: str, request: LaunchRequest, *, managed: bool) -> None:
    """Refuse an autodown where SkyPilot has none.

    Raises:
        UsageError: one is asked for there.
    """
    if request.autodown_minutes is not None and cloud in NO_AUTODOWN and not managed:
        raise UsageError(
            f"SkyPilot has no autodown on {cloud}: --autodown {request.autodown_minutes} would end"
            " nothing.",
            fix="leave it out, and let this command run until the job has ended: it alone ends the"
            " machines.",
        )


def refuse_over_budget(cost: LaunchCost, guard: GuardRequest) -> None:
    """Refuse a launch that is expected to pass what its guard allows, so that it would not end.

    What may pass it at worst is launched: the guard ends it in time, after a checkpoint.

    Raises:
        LimitError: it is.
    """
    limit = guard.max_cost_usd
    term_usd = cost.usd_of_terms
    if limit is not None and term_usd is not None and term_usd > limit:
        raise LimitError(
            f"The term that these machines are priced for costs ${term_usd:,.2f}, used or not, more"
            f" than {_limit(guard)}; no guard ends that.",
            fix="state its `count` under `reserved:` of the pricebook if you hold it already, or"
            " choose a plan on demand, or allow more.",
        )
    if limit is not None and cost.usd_expected is not None and cost.usd_expected > limit:
        raise LimitError(
            f"This is expected to cost ${cost.usd_expected:,.2f}, more than"
            f" {_limit(guard)} (at worst: ${cost.usd_worst:,.2f}).",
            fix="choose a cheaper plan, fewer steps or --spot, or allow more with"
            f" --max-cost {_whole_dollars(cost)}, its worst case.",
        )
    hours = guard.max_hours
    if hours is not None and cost.hours_running is not None and cost.hours_running > hours:
        raise LimitError(
            f"This is expected to take {_number(cost.hours_running)} hours, more than --max-hours"
            f" {_number(hours)}.",
            fix="choose a faster plan or fewer steps, or allow more.",
        )


def _number(hours: float) -> str:
    """Return hours to three digits, below ten."""
    return f"{hours:,.1f}" if hours >= 10 else f"{hours:.3g}"


def refuse_hourly(
    places: Sequence[Place] | Sequence[PricedPlace], nodes: int, limit_usd: Decimal | None
) -> None:
    """Refuse machines that cost more an hour than is allowed, all nodes, wherever they are tried.

    Raises:
        LimitError: they do in one of the places.
    """
    if limit_usd is None:
        return
    dearest = max(places, key=lambda one: one.usd_per_hour)
    usd_per_hour = dearest.usd_per_hour * nodes
    if usd_per_hour > limit_usd:
        raise LimitError(
            f"These machines cost ${usd_per_hour:,.2f} an hour in {dearest.infra}, more than"
            f" --max-hourly-cost ${limit_usd:,.2f}.",
            fix="choose a plan with fewer or cheaper machines, other places, or --spot (without"
            " --deadline, which may take on-demand ones), or allow more.",
        )


def _whole_dollars(cost: LaunchCost) -> int:
    """Return the worst case in dollars, rounded up."""
    return math.ceil(max(cost.usd_worst or 0, cost.usd_expected or 0))


def _limit(guard: GuardRequest) -> str:
    """Return the limit on the cost, with who set it."""
    return f"{guard.max_cost_source} ${guard.max_cost_usd:,.2f}"


def refuse_past_deadline(
    cost: LaunchCost,
    deadline: datetime | None,
    *,
    now: datetime,
    source: str = "--deadline",
) -> None:
    """Refuse a launch that is expected to end after its deadline, which the source set.

    Raises:
        LimitError: it is.
    """
    if deadline is None or cost.hours_running is None:
        return
    left_hours = (deadline.astimezone() - now.astimezone()).total_seconds() / SECONDS_PER_HOUR
    if cost.hours_running > left_hours:
        raise LimitError(
            f"This is expected to take {_number(cost.hours_running)} hours, and {source} is in"
            f" {max(left_hours, 0):,.2f} hours.",
            fix="choose a faster plan (`gpuplan estimate --deadline`), or allow more time with"
            " --deadline.",
        )


def refuse_missing_packages(
    spec: ModelSpec | None, project: Project, request: LaunchRequest
) -> None:
    """Refuse a job that would fail on its first line, on machines that are paid for.

    Raises:
        UsageError: the model imports packages that nothing would install.
    """
    brings_own = request.setup is not None or (request.image or "").startswith("docker:")
    environment = project.environment
    if spec is None or brings_own or environment.packages:
        return
    needed = needed_packages(spec)
    if environment.found is not None:
        _refuse_unnamed(spec, project.workdir / environment.found)
    elif needed:
        raise MissingError(
            f"{spec.text} needs {', '.join(needed)}, and no file of {project.workdir} says which"
            " packages to install.",
            fix="write a requirements.txt there, or give --setup or --image docker:….",
            commands=list_of_packages(needed, project.workdir),
        )


def _is_named(module: str, text: str) -> bool:
    """Return whether a list of packages names that of a module; torch brings Triton by itself."""
    package = module.removesuffix("_interface").replace("_", "[-_.]")
    return module == "triton" or re.search(package, text, re.IGNORECASE) is not None


def _refuse_unnamed(spec: ModelSpec, environment: Path) -> None:
    """Refuse a model that imports what only a machine with CUDA has, where no file names it.

    An estimate does without such a package: what it says is no sign that a run finds it. Others are
    not looked for: a module may come with a package of another name.
    """
    if spec.kind != "file":
        return
    text = environment.read_text(encoding="utf-8", errors="replace")
    imported = {name.partition(".")[0] for name in required_imports(spec.path)}
    if FLASH_IN_TRANSFORMERS.search(read_source(spec.path)):
        imported.add("flash_attn")
    unnamed = [
        one for one in sorted(imported) if one in BUILT_FOR_CUDA and not _is_named(one, text)
    ]
    if unnamed:
        listed = " and ".join(unnamed)
        raise MissingError(
            f"{spec.text} needs {listed}, which {environment.name} does not name: the run would"
            " fail on machines that are paid for.",
            fix=f"name it in {environment.name}, or give --setup or --image docker:…; flash-attn,"
            " for one, is built against the torch that is there (pip's --no-build-isolation).",
        )


def refuse_missing_script(project: Project, request: LaunchRequest) -> None:
    """Refuse a script that no node would find, before one is paid for.

    One that set-up or an image brings is not looked for, and an absolute path is that of a node.

    Raises:
        UsageError: it is not in the folder that is sent.
    """
    if request.command is None:
        return
    target = parse_command(request.command)
    brings_own = request.setup is not None or (request.image or "").startswith("docker:")
    if target.kind != "script" or brings_own or PurePosixPath(target.name).is_absolute():
        return
    if not (project.workdir / target.name).is_file():
        raise MissingError(
            f"There is no script {target.name!r} in {project.workdir}, the folder that is sent to"
            " the nodes and that the command runs in.",
            fix="give its path from there, or --workdir the folder where it is.",
        )


def refuse_unwritable_fetch(request: LaunchRequest) -> None:
    """Refuse a folder that results could not be brought to, while nothing is paid for yet.

    Raises:
        UsageError: it cannot be made, or nothing may be written in it.
    """
    if request.fetch is None:
        return
    folder = Path(request.fetch)
    nearest = next((one for one in (folder, *folder.parents) if one.exists()), None)
    if nearest is None or not nearest.is_dir():
        why = "is a file" if nearest is not None else "is not there"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        why = "may not be written in"
    else:
        return
    raise MissingError(
        f"Results cannot be brought to {folder}: {nearest or folder} {why}.",
        fix="give --fetch a folder that you may write to.",
    )


def _refuse_for_own_script(request: LaunchRequest) -> None:
    """Refuse what is for gpuplan's own loop beside a script of the user's own."""
    if request.guard.smoke and request.command is not None:
        raise UsageError(
            "--smoke ends after the first steps, and nobody knows the steps of your own script.",
            fix="leave --smoke out, and give --max-cost or --max-hours to end it.",
        )
    if request.synthetic and request.command is not None:
        raise UsageError(
            "--synthetic is for gpuplan's own runner; your own script reads its own data.",
            fix="leave --synthetic out.",
        )


def _refuse_unrunnable(plan: Plan, request: LaunchRequest) -> None:
    if request.command is None and (plan.runnable is False or plan.needs_port):
        raise NoFeasiblePlanError(
            f"gpuplan's runner does not run plan {plan.id}:"
            f" {plan.why_not_runnable or 'it needs a port.'}",
            fix='launch a script of your own with --command "train.py …" --framework …, or choose'
            " another plan.",
        )


def _refuse_loss(plan: Plan, request: LaunchRequest) -> None:
    """Refuse a launch whose results would go with the machines."""
    ways = {
        "--outputs": request.outputs,
        "--shared": request.shared,
        "--fetch": request.fetch,
    }
    given = [option for option, value in ways.items() if value is not None]
    if not given:
        raise MissingError(
            "The machines go when the job is done, and checkpoints and results would go with them.",
            fix="give --outputs s3://bucket/folder, --shared a folder that all nodes have already,"
            " or for one node --fetch FOLDER to have them brought here first.",
            options=place_for_results(plan, request),
        )
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} are both given.", fix="give one of them.")
    if request.fetch is not None and request.command is None and plan.nodes > 1:
        raise UsageError(
            f"The {plan.nodes} nodes write one checkpoint together, and --fetch brings what is on"
            " the first.",
            fix="give --outputs s3://bucket/folder, which all nodes share, or --shared FOLDER.",
        )
    if request.fetch is not None and request.buys_spot(plan):
        raise UsageError(
            "A spot machine may go at any time, with what has not been fetched yet.",
            fix="give --outputs s3://bucket/folder, --shared FOLDER, or --on-demand.",
        )
