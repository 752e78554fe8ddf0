"""The training itself: run here, launched elsewhere, and what it took beside what was predicted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .answers import estimate, known_stops
from .kept import keep
from .models.inputs import model as model_spec
from .models.inputs import read_inputs

if TYPE_CHECKING:
    from ..catalog.embedded import Catalogue
    from ..launcher.lifecycle.engine import Engine
    from ..launcher.local.actuals import Actuals
    from ..launcher.local.export_weights import ExportedWeights
    from ..launcher.local.run_request import RunRequest, RunResult
    from ..launcher.prepare.prepare import Later, Prepared
    from ..launcher.prepare.request import LaunchRequest
    from ..launcher.prepare.task.export import Exported
    from ..launcher.runner.weights.formats import WeightDtype, WeightFormat
    from ..launcher.store.sourced_plan import SourcedPlan
    from ..planner.plan.plan import Plan
    from ..planner.search.machines.offers import SpotPrices
    from ..profiles.user_model.spec import ModelSpec


def run(
    model: str | Path | ModelSpec,
    request: RunRequest | None = None,
    *,
    plan: str | Plan | None = None,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    now: Callable[[], datetime] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> RunResult:
    """Train a model on this machine; return what remains of the run.

    SIGINT and SIGTERM end it after the step that runs, with a checkpoint; the result says so.

    Args:
        model: A model as for `profile`, but no written Profile.
        request: How; default: every CUDA device, else one process on the processor.
        plan: A plan, its id, a `plan.json`, or `estimate.json#ID`; None: as the file asks itself,
            data-parallel over the processes.
        params: Values for the functions of the file.
        inputs: Shapes of the tensors of a plain module.
        now: The clock, for names; default: the current local time.
        on_note: Called with messages for the user.

    Raises:
        UsageError: What is asked for contradicts itself, the plan or this machine.
        NoFeasiblePlanError: gpuplan does not run such a plan.
        GpuplanError: The run failed; its folder holds the traceback and the checkpoints.
    """
    from ..catalog.snapshot import load_catalogue
    from ..launcher.local import run as local_run
    from ..launcher.local.run_request import RunRequest
    from ..launcher.store.plan_file import given_plan

    tell = on_note or (lambda _text: None)
    spec = model_spec(model, params=params, inputs=inputs)
    prepared = local_run.prepare(
        spec,
        None if plan is None else given_plan(plan),
        request or RunRequest(),
        catalogue=load_catalogue(None),
        now=now or datetime.now,
        on_note=tell,
    )
    result = local_run.execute(prepared, on_note=tell)
    _keep_step(result, spec)
    return result


def _keep_step(result: RunResult, spec: ModelSpec) -> None:
    """Let later estimates of the plan rest on its run, if it ran on the planned devices."""
    from ..launcher.store.estimates import Store
    from ..launcher.store.measured_steps import is_on_planned, keep_step, workload_key
    from ..planner.predict.measured.known_runs import run_key

    record, plan = result.record, result.plan
    # Processors of two machines are hardly ever the same, and a driver does not name them.
    if plan is None or record.get("accelerator") in (None, "cpu"):
        return
    if is_on_planned(record, plan.offer.accelerator):
        keep_step(
            Store(),
            record,
            run=str(record["id"]),
            workload=workload_key(spec),
            plan_key=run_key(plan),
            now=lambda: datetime.now(UTC),
        )


def run_script(
    command: str,
    framework: str,
    *,
    plan: str | Plan | None = None,
    nproc: int | None = None,
    device: str | None = None,
    folder: Path | None = None,
    on_note: Callable[[str], None] | None = None,
) -> int:
    """Run the user's own script on this machine under its framework; return its exit code.

    Args:
        command: `train.py --flags`, `-m module --flags` or a program.
        framework: torchrun, accelerate, deepspeed, lightning, horovod, jax, tensorflow or none.
        plan: As for `run`.
        nproc: Processes; default: the plan's accelerators, else the CUDA devices, else 1.
        device: cpu or cuda; default: cuda where there is one.
        folder: Where the framework's config files go; default: `gpuplan-runs/script`.
        on_note: Called with what the script must do itself for the plan to hold.

    Raises:
        UsageError: The command, the framework or the plan cannot be run so.
    """
    from ..launcher.local.script import run_script as run_here
    from ..launcher.store.plan_file import given_plan

    return run_here(
        command,
        framework,
        plan=None if plan is None else given_plan(plan).plan,
        nproc=nproc,
        device=device,
        folder=folder or Path("gpuplan-runs") / "script",
        on_note=on_note or (lambda _text: None),
    )


def launch(
    plan: str | Plan | None = None,
    request: LaunchRequest | None = None,
    *,
    model: str | Path | ModelSpec | None = None,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    workdir: Path | None = None,
    owner: str | None = None,
    project_name: str | None = None,
    project_file: str | Path | None = None,
    pricebook: Path | None = None,
    replan: bool = False,
    now: Callable[[], datetime] | None = None,
    unique: Callable[[], str] | None = None,
    engine: Engine | None = None,
    later: Sequence[Later] = (),
) -> Prepared:
    """Return a plan as the SkyPilot task that launches it, with what it costs.

    Nothing is written, and nothing is rented: `start` does both.

    Args:
        plan: As for `run`; None: the recommended one of the last estimate made in this folder. One
            of an estimate that was not kept (`keep`) does not say its model: give it too.
        request: How; a place for results must be given. Without a limit on the cost or a deadline,
            those of the plan's estimate hold.
        model: The model, where the plan does not say; it must be the one it was made for.
        params: Values for the functions of the file, for such a model.
        inputs: Shapes of the tensors of a plain module, for such a model.
        workdir: The folder that is sent; default: this one, or the model's own.
        owner: Who is named in the labels; default: this machine's user.
        project_name: The project the cost belongs to; default: that of the project's file, else the
            folder's name.
        project_file: A project's file, or its folder, whose limits it obeys (`limits` of the
            result); default: the `gpuplan.yaml` of this folder, unless another project is named.
        pricebook: The user's own terms, whose prices take the place of the plan's; default: those
            that it was made with.
        replan: Whether to ask the plan's question again first.
        now: The clock, for names; default: the current local time.
        unique: Returns six characters that no other run has; default: drawn at random.
        engine: What will rent it (`launches.context().engine`): what it lacks on this machine is
            listed with all else that is missing; default: nobody asks.
        later: Checks that are made again before anything is rented: listed with what is missing,
            and no refusal where nothing is.

    Raises:
        UsageError: The plan is stale, results would be lost, or what is asked for contradicts it.
        NoFeasiblePlanError: There is no such plan, or gpuplan's runner does not run it.
        PriceError: A price is not known.
        LimitError: The worst case costs more than is allowed.
    """
    from dataclasses import replace
    from uuid import uuid4

    from ..launcher.prepare import plan_choice, project
    from ..launcher.prepare import prepare as launching
    from ..launcher.prepare.estimate_limits import with_estimate_limits
    from ..launcher.prepare.money.own_terms import at_own_terms
    from ..launcher.prepare.money.project_money import held_to_project
    from ..launcher.prepare.request import LaunchRequest
    from ..launcher.skypilot.controller import has_controller_machine
    from ..launcher.skypilot.user_settings import aws_settings
    from ..launcher.store.estimates import Store
    from ..launcher.store.launches import Ledger
    from .projects.limits import project_of_launch

    request = request or LaunchRequest()
    if request.has_controller and not has_controller_machine(os.environ, Path.home()):
        request = replace(request, has_controller=False)
    request = replace(request, aws=aws_settings(os.environ, Path.home()))
    folder = Path.cwd()
    clock = now or datetime.now

    def utc() -> datetime:
        return clock().astimezone(UTC)

    of_file, unchecked = project_of_launch(project_file, project_name, folder)
    if of_file is not None:
        project_name = project_name or of_file.name
    store = Store()
    given = plan_choice.chosen(plan, request, folder=folder, store=store)
    catalogue = plan_choice.catalogue_of(given.origin, pricebook)
    if pricebook is not None:
        given = at_own_terms(given, catalogue, pricebook)
    if replan:
        given = _replanned(given, request, named=plan is not None)
    request = with_estimate_limits(given, request, now=utc())
    spec = _model_of(given, request, model, params=params, inputs=inputs)
    root = workdir or project.default_workdir(None if spec is None else spec.path, folder)
    prepared = launching.prepare(
        given,
        spec,
        project.read_project(root, owner=owner, named=project_name),
        request,
        catalogue=catalogue,
        own_stops=known_stops(),
        spot_prices=_spot_prices(given.plan, request, catalogue),
        folder=folder,
        now=clock,
        unique=unique or (lambda: uuid4().hex[:6]),
        engine=engine,
        later=later,
    )
    notes = prepared.notes if unchecked is None else (*prepared.notes, unchecked)
    prepared = replace(prepared, project_file=of_file, notes=notes)
    prepared = held_to_project(prepared, Ledger(store, now=utc), now=utc)
    # Nothing is written here: where there is no store yet, `start` makes it and labels the task.
    store_id = store.known_id()
    return prepared if store_id is None else launching.in_store(prepared, store_id)


def _spot_prices(plan: Plan, request: LaunchRequest, catalogue: Catalogue) -> SpotPrices:
    """Return what the user's snapshots say of the spot prices of a plan's machines, by day."""
    from ..catalog.prices.spot_history import spot_history

    if not request.buys_spot(plan):
        return {}
    kind = plan.offer.provider, plan.offer.instance_type
    sold = (o for o in catalogue.offers if (o.provider, o.instance_type) == kind)
    return spot_history({(one.provider, one.region, one.instance_type) for one in sold})


def export(
    plan: str | Plan, to: str, *, command: str = "train.py", workdir: Path | None = None
) -> Exported:
    """Return a plan as the file of another tool, with notes; nothing is written.

    Args:
        plan: As for `run`.
        to: skypilot (a task), torchrun (a shell script), deepspeed (its JSON) or accelerate (its
            YAML).
        command: The user's own script as it is started: `train.py --flags`, `-m module --flags`.
        workdir: The folder whose requirements SkyPilot installs; default: this one.

    Raises:
        UsageError: There is no such plan or tool, or the tool cannot carry out the plan; it is said
            which can.
        PriceError: SkyPilot would rent where no price is known.
    """
    from ..launcher.prepare.plan_choice import catalogue_of
    from ..launcher.prepare.project import read_project
    from ..launcher.prepare.task.export import ExportJob
    from ..launcher.prepare.task.export import export as write
    from ..launcher.store.plan_file import given_plan

    given = given_plan(plan)
    job = ExportJob(
        plan=given.plan,
        command=command,
        project=read_project(workdir or Path.cwd()),
        catalogue=catalogue_of(given.origin),
    )
    return write(job, to)


def export_weights(
    run: str | Path,
    to: WeightFormat = "huggingface",
    *,
    folder: str | Path | None = None,
    checkpoint: str = "newest",
    dtype: WeightDtype | None = None,
    max_file_bytes: int | None = None,
) -> ExportedWeights:
    """Write the weights of a run as files that others read; return what was written.

    No more than the largest tensor, or 256 MB, is in memory at a time; the optimizer is not read.

    Args:
        run: The folder of results of gpuplan's own runner, or one of its checkpoints.
        to: `safetensors` (names as in the model) or `huggingface` (for `from_pretrained`).
        folder: To make; it must not exist, or be empty. None: `weights-step-…` in that of the run.
        checkpoint: `newest`, `best` (lowest loss of the evaluations), or a step.
        dtype: Of floating-point weights: fp32, bf16 or fp16; None: as they were trained.
        max_file_bytes: Of the tensors in one file; None: 5 GB.

    Raises:
        UsageError: There is no such run or checkpoint, the folder is in use, or `huggingface` is
            asked for and the model is none of transformers.
        GpuplanError: The checkpoint is damaged, or the folder cannot be written.
    """
    from ..launcher.local.export_weights import MAX_FILE_BYTES
    from ..launcher.local.export_weights import export_weights as write

    return write(
        Path(run),
        to,
        folder=None if folder is None else Path(folder),
        checkpoint=checkpoint,
        dtype=dtype,
        max_file_bytes=MAX_FILE_BYTES if max_file_bytes is None else max_file_bytes,
    )


def next_plan(prepared: Iterable[Prepared], request: LaunchRequest) -> Plan | None:
    """Return the next-best plan of the last estimate made in this folder.

    Args:
        prepared: What was tried, and had no capacity.
        request: How it would be launched.

    Returns:
        The plan, on other machines or in another place than all of those; None if there is none.
    """
    from ..launcher.prepare import plan_choice
    from ..launcher.store.estimates import Store

    kept = Store().newest_of(Path.cwd())
    if kept is None:
        return None
    return plan_choice.next_best(
        kept.estimate,
        request,
        catalogue=plan_choice.catalogue_of(kept.origin),
        besides=[one.plan for one in prepared],
    )


def actuals(place: str | Path) -> Actuals:
    """Return what a run measured beside what its plan predicted.

    Args:
        place: The folder of the run, or its `record.json`.

    Raises:
        UsageError: There is no run record.
    """
    from ..launcher.local.actuals import actuals as compare

    return compare(Path(place))


def _model_of(
    given: SourcedPlan,
    request: LaunchRequest,
    model: str | Path | ModelSpec | None,
    *,
    params: Mapping[str, Any] | None,
    inputs: Iterable[str],
) -> ModelSpec | None:
    """Return the model that is trained, or None where the user's own script is."""
    from ..launcher.prepare.plan_choice import refuse_another_model

    spec = None if given.origin is None else given.origin.spec
    if model is not None:
        spec = model_spec(model, params=params, inputs=inputs)
        refuse_another_model(given, spec)
    return spec if request.command is None else None


def _replanned(given: SourcedPlan, request: LaunchRequest, *, named: bool) -> SourcedPlan:
    """Return a plan as it is today: its question is asked again, and the answer kept."""
    from ..catalog.errors import UsageError
    from ..launcher.prepare import plan_choice
    from ..launcher.store.origin import files_hash
    from ..launcher.store.sourced_plan import SourcedPlan

    origin = given.origin
    if origin is None:
        raise UsageError(
            f"Plan {given.plan.id} does not say which question it answered.",
            fix="run `gpuplan estimate` again, without --replan here.",
        )
    asked = read_inputs(
        origin.spec,
        precisions=origin.question.choices.precisions,
        machine=origin.question.machine,
        offers=None if origin.offers is None else Path(origin.offers),
        pricebook=None if origin.pricebook is None else Path(origin.pricebook),
    )
    answer = estimate(asked, origin.question)
    keep(answer, inputs=asked, question=origin.question, folder=Path(origin.folder))
    return SourcedPlan(
        plan=plan_choice.same_plan(given.plan, answer)
        if named
        else plan_choice.cheapest(answer, request, catalogue=asked.catalogue),
        estimate=answer,
        origin=origin.model_copy(update={"files_hash": files_hash(origin.spec)}),
    )
