"""The use cases of gpuplan: typed values in, typed values out, nothing printed.

>>> from gpuplan import api
>>> question = api.Question(machine=api.Machine(accelerators=("A100",), max_nodes=2))
>>> answer = api.estimate("examples/gpt2.py", question)  # doctest: +SKIP
>>> answer.plans[0].string  # doctest: +SKIP
'dp8 mb8 bf16-amp'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .catalog.errors import GpuplanError
from .planner.layout import Layout, parse_layout
from .planner.plan import (
    PRECISIONS,
    CatalogueFacts,
    Estimate,
    Headlines,
    Offloaded,
    Plan,
    Precision,
    RecomputeKind,
    WorkloadFacts,
)
from .planner.request import Choices, Machine, Money, Question, Work
from .profiles.profile import NUMERICS_OF_PRECISION, Numerics, Profile
from .profiles.spec import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from .catalog.snapshot import Catalogue
    from .launcher.actuals import Actuals
    from .launcher.launch import Prepared
    from .launcher.plan_file import GivenPlan
    from .launcher.request import LaunchRequest
    from .launcher.run_request import RunRequest, RunResult
    from .launcher.store import KeptPlan
    from .planner.fits import FitsAnswer
    from .planner.folds import Protocol
    from .planner.judge import Validation
    from .planner.timeline import Span
    from .profiles.doctor import Diagnosis
    from .profiles.measure import MeasureRequest
    from .profiles.measured import MeasuredProfile
    from .profiles.service import PendingProfile
    from .profiles.spec import ModelSpec

__all__ = [
    "Choices",
    "Estimate",
    "GpuplanError",
    "Inputs",
    "Layout",
    "Machine",
    "Money",
    "Plan",
    "Profile",
    "Question",
    "Work",
    "actuals",
    "doctor",
    "estimate",
    "fits",
    "keep",
    "kept_estimates",
    "kept_plan",
    "launch",
    "measure",
    "parse_layout",
    "profile",
    "read_inputs",
    "run",
    "run_script",
    "sources",
    "timeline",
    "validate",
]

DEFAULT_NUMERICS: tuple[Numerics, ...] = ("amp16", "fp32", "pure16")
"""What is traced when no precision is asked for: the planner is then free to take either."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What every question about one model starts from; read it once, ask often."""

    profile: Profile
    catalogue: Catalogue
    spec: ModelSpec | None = None
    """The model as it was named; None where the Profile came from elsewhere."""
    offers: Path | None = None
    """The user's own machines and prices that the catalogue holds."""


def profile(
    model: str | Path,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    numerics: Iterable[Numerics] | None = None,
    optimizer: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    use_cache: bool = True,
    on_output: Callable[[str], None] | None = None,
) -> Profile:
    """Return the Profile of a model file: FLOPs, bytes and memory of one step, traced with no GPU.

    Args:
        model: `model.py`, `model.py:ClassName`, `hf:<folder or config.json>` or a written Profile.
        params: Values for the functions of the file.
        inputs: Shapes of the tensors of a plain module, such as "3,224,224".
        numerics: Which storage and compute dtypes to trace; default: the file's own.
        optimizer: An optimizer to trace instead of the file's.
        timeout_s: Longest time the file may take, seconds.
        use_cache: Whether to look for the Profile in the cache, and to keep it there.
        on_output: Called with what the user's code printed.

    Raises:
        UserFileError: The file failed, took too long, or does not follow the contract.
        UsageError: The file cannot be read, or a param is taken by none of its functions.
    """
    from .profiles.service import make_profile
    from .profiles.spec import parse_model_spec

    spec = parse_model_spec(str(model), params=params, inputs=inputs, timeout_s=timeout_s)
    return make_profile(
        spec,
        numerics=None if numerics is None else tuple(sorted(numerics)),
        optimizer=optimizer,
        use_cache=use_cache,
        on_output=on_output,
    )


def measure(
    model: str | Path,
    request: MeasureRequest | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    timeout_s: float = DEFAULT_TIMEOUT_S,
    use_cache: bool = True,
    on_progress: Callable[[str, int | None, int | None], None] | None = None,
    on_output: Callable[[str], None] | None = None,
) -> MeasuredProfile:
    """Return the Profile of a model with what real steps of it took on this machine.

    Args:
        model: A model as for `profile`, but no written Profile.
        request: What to run; default: 20 steps on the CUDA device, else on the processor.
        params: Values for the functions of the file.
        inputs: Shapes of the tensors of a plain module.
        timeout_s: Longest time each thing that is done may take, seconds.
        use_cache: Whether the trace may come from the cache; nothing measured does.
        on_progress: Called with what is being done, how far it is, and of how much.
        on_output: Called with what the user's code printed.

    Raises:
        UserFileError: The file failed, took too long, or a step of it did not fit in memory.
        UsageError: What is asked for cannot be run on this machine.
    """
    from .profiles.measure import MeasureRequest
    from .profiles.measure import measure as run_steps
    from .profiles.spec import parse_model_spec

    return run_steps(
        parse_model_spec(str(model), params=params, inputs=inputs, timeout_s=timeout_s),
        request or MeasureRequest(),
        use_cache=use_cache,
        on_progress=on_progress,
        on_output=on_output,
    )


def read_inputs(
    model: str | Path,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    precisions: Iterable[Precision] = (),
    machine: Machine | None = None,
    offers: Path | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    use_cache: bool = True,
    on_output: Callable[[str], None] | None = None,
) -> Inputs:
    """Return the Profile of a model and the catalogue, read at the same time.

    Args:
        model: As for `profile`, like all arguments that are not listed here.
        params: Values for the functions of the file.
        inputs: Shapes of the tensors of a plain module.
        precisions: Those that will be asked about; default: any that a free planner may choose.
        machine: Names to check against the catalogue, before the trace has ended.
        offers: The user's own machines and prices, a YAML or CSV file.
        timeout_s: Longest time the file may take, seconds.
        use_cache: Whether to use the cache of Profiles.
        on_output: Called with what the user's code printed.

    Raises:
        GpuplanError: What `profile` raises; a name or the offers file is not understood.
    """
    from .profiles.service import begin_profile
    from .profiles.spec import parse_model_spec

    spec = parse_model_spec(str(model), params=params, inputs=inputs, timeout_s=timeout_s)
    wanted: set[Numerics] = {NUMERICS_OF_PRECISION[precision] for precision in precisions}
    if "amp16" in wanted:
        wanted.add("pure16")  # FSDP runs mixed precision on 16-bit layers.
    numerics: tuple[Numerics, ...] = tuple(sorted(wanted or DEFAULT_NUMERICS))
    pending = begin_profile(spec, numerics=numerics, use_cache=use_cache, on_output=on_output)
    with _ended(pending):
        catalogue = _read_catalogue(offers, machine)
        # The search is imported here because the child process is still tracing meanwhile.
        from .planner import search as _search  # noqa: F401

        traced = pending.result()
    return Inputs(profile=traced, catalogue=catalogue, spec=spec, offers=offers)


def estimate(
    model: str | Path | Inputs,
    question: Question | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    offers: Path | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    now: Callable[[], datetime] | None = None,
) -> Estimate:
    """Return ranked, priced plans for training a model; no plan is an answer too.

    Args:
        model: A model as for `profile`, or what `read_inputs` returned.
        question: The work, machines, layouts and money; default: everything, no amount of work.
        params: Values for the functions of the file.
        offers: The user's own machines and prices.
        timeout_s: Longest time the file may take, seconds.
        now: The clock for `generated_at`; default: the current time in UTC.

    Raises:
        GpuplanError: The file, an option or the catalogue is at fault.
    """
    question = question or Question()
    if not isinstance(model, Inputs):
        model = read_inputs(
            model,
            params=params,
            precisions=question.choices.precisions,
            machine=question.machine,
            offers=offers,
            timeout_s=timeout_s,
        )
    from . import __version__
    from .planner.search import search

    profile, notes = _calibrated(model)
    found = search(question, profile, model.catalogue)
    return Estimate(
        gpuplan_version=__version__,
        generated_at=(now or _utc_now)().isoformat(timespec="seconds"),
        catalog=CatalogueFacts(
            snapshot_date=model.catalogue.snapshot_date, offers=len(model.catalogue.offers)
        ),
        workload=_workload(model.profile),
        headlines=Headlines.model_validate(found.headlines),
        plans=found.plans,
        feasible=found.feasible,
        rejected=found.rejected,
        notes=(*notes, *found.notes),
    )


def fits(
    model: str | Path | Inputs,
    on: str,
    *,
    params: Mapping[str, Any] | None = None,
    precision: Precision | None = None,
    micro_batch: int | None = None,
    recompute: RecomputeKind = "none",
    layout: Layout | None = None,
    optimizer: str | None = None,
    offload: Collection[Offloaded] = (),
    offers: Path | None = None,
) -> FitsAnswer:
    """Return whether a training step fits one accelerator, with what is spare or would help.

    Args:
        model: A model as for `profile`, or what `read_inputs` returned.
        on: Any known name of one accelerator.
        params: Values for the functions of the file.
        precision: Default: the file's own, else fp32.
        micro_batch: Samples per device; default: 1.
        recompute: What is computed again in the backward pass instead of kept.
        layout: How the state is split over devices like this one; default: one device.
        optimizer: A what-if instead of the file's own.
        offload: What is kept in host memory.
        offers: The user's own machines, whose accelerators are then known too.

    Raises:
        GpuplanError: The file, an option or the catalogue is at fault.
    """
    from .catalog.errors import UsageError
    from .catalog.names import resolve_accelerator

    if not isinstance(model, Inputs):
        # A remedy may be 16-bit autocast, whatever was asked about.
        precisions: tuple[Precision, ...] = () if precision is None else (precision, "bf16-amp")
        model = read_inputs(model, params=params, precisions=precisions, offers=offers)
    name = resolve_accelerator(on, catalogue=model.catalogue)
    accelerator = model.catalogue.accelerators.get(name)
    if accelerator is None:
        raise UsageError(
            f"{name} is sold, but no specification of it is known.",
            fix="add it to a file for --offers.",
        )
    from .planner.fits import fits as answer

    return answer(
        model.profile,
        accelerator,
        precision=precision or _own_precision(model.profile),
        micro_batch=micro_batch,
        recompute=recompute,
        layout=layout,
        optimizer=optimizer,
        offload=frozenset(offload),
    )


def sources(plan: Plan, *, offers: Path | None = None) -> dict[str, str]:
    """Return what a plan's numbers rest on → where that is from, as far as it is known.

    Args:
        plan: The plan.
        offers: The user's own machines, if the plan may be on one of them.
    """
    from .catalog.snapshot import load_catalogue
    from .planner.provenance import provenance

    return provenance(plan, load_catalogue(offers))


def timeline(inputs: Inputs, plan: Plan) -> list[Span]:
    """Return the predicted step of a plan as spans of time, for a trace viewer."""
    from .planner.timeline import timeline as spans

    return spans(inputs.profile, plan, inputs.catalogue.accelerators[plan.offer.accelerator])


def keep(
    answer: Estimate, *, inputs: Inputs, question: Question, folder: Path | None = None
) -> None:
    """Keep an estimate, so that its plans can be found again by their id.

    Args:
        answer: What `estimate` returned.
        inputs: What it was made from.
        question: What was asked.
        folder: Where it was made; default: the current one. `launch` looks there.

    Raises:
        StoreError: The store cannot be written; the estimate itself is none the worse.
    """
    from .launcher.origin import origin_of
    from .launcher.store import Store
    from .planner.ids import content_hash

    folder = folder or Path.cwd()
    origin = None
    if inputs.spec is not None:
        origin = origin_of(inputs.spec, question, folder=folder, offers=inputs.offers)
    asked = {
        "folder": str(folder),
        "source": inputs.profile.source_hash,
        "name": inputs.profile.name,
        "params": inputs.profile.params,
        "question": question,
        "snapshot_date": answer.catalog.snapshot_date,
        "offers": answer.catalog.offers,
        "gpuplan_version": answer.gpuplan_version,
    }
    Store().keep(answer, inputs_hash=content_hash(asked), origin=origin)


def kept_estimates(*, limit: int | None = None) -> list[Estimate]:
    """Return the kept estimates with their first plans, newest first."""
    from .launcher.store import Store

    return Store().estimates(limit=limit)


def kept_plan(prefix: str) -> KeptPlan:
    """Return the one kept plan whose id begins with `prefix`, with the estimate it is from.

    Raises:
        UsageError: No kept plan or several begin with it.
    """
    from .launcher.store import Store

    return Store().find_plan(prefix)


def run(
    model: str | Path,
    request: RunRequest | None = None,
    *,
    plan: str | None = None,
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
        plan: A plan's id, a `plan.json`, or `estimate.json#ID`; None: as the file asks itself,
            data-parallel over the processes.
        params: Values for the functions of the file.
        inputs: Shapes of the tensors of a plain module.
        now: The clock, for names; default: the current local time.
        on_note: Called with what a person should know on the way.

    Raises:
        UsageError: What is asked for contradicts itself, the plan or this machine.
        NoFeasiblePlanError: gpuplan does not run such a plan.
        GpuplanError: The run failed; its folder holds the traceback and the checkpoints.
    """
    from .catalog.snapshot import load_catalogue
    from .launcher import local_run
    from .launcher.plan_file import given_plan
    from .launcher.run_request import RunRequest
    from .profiles.spec import parse_model_spec

    tell = on_note or (lambda _text: None)
    prepared = local_run.prepare(
        parse_model_spec(str(model), params=params, inputs=inputs),
        None if plan is None else given_plan(plan),
        request or RunRequest(),
        catalogue=load_catalogue(None),
        now=now or datetime.now,
        on_note=tell,
    )
    return local_run.execute(prepared, on_note=tell)


def run_script(
    command: str,
    framework: str,
    *,
    plan: str | None = None,
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
    from .launcher.local_script import run_script as run_here
    from .launcher.plan_file import given_plan

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
    plan: str | None = None,
    request: LaunchRequest | None = None,
    *,
    model: str | Path | None = None,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    workdir: Path | None = None,
    owner: str | None = None,
    replan: bool = False,
    dryrun: bool = True,
    now: Callable[[], datetime] | None = None,
    unique: Callable[[], str] | None = None,
) -> Prepared:
    """Return a plan as the SkyPilot task that launches it, with what it costs; rent nothing.

    Args:
        plan: As for `run`; None: the cheapest of the last estimate made in this folder.
        request: How; a place for results must be given.
        model: The model, where the plan does not say; it must be the one it was made for.
        params: Values for the functions of the file, for such a model.
        inputs: Shapes of the tensors of a plain module, for such a model.
        workdir: The folder that is sent; default: this one, or the model's own.
        owner: Who is named in the labels; default: this machine's user.
        replan: Whether to ask the plan's question again first.
        dryrun: False also writes the task and what it sends, below `gpuplan-launches`.
        now: The clock, for names; default: the current local time.
        unique: Returns six characters that no other run has; default: drawn at random.

    Raises:
        UsageError: The plan is stale, results would be lost, or what is asked for contradicts it.
        NoFeasiblePlanError: There is no such plan, or gpuplan's runner does not run it.
        PriceError: A price is not known.
        LimitError: The worst case costs more than is allowed.
    """
    from uuid import uuid4

    from .launcher import choice, project
    from .launcher import launch as launching
    from .launcher.request import LaunchRequest
    from .launcher.store import Store
    from .profiles.spec import parse_model_spec

    request = request or LaunchRequest()
    folder = Path.cwd()
    given = choice.chosen(plan, request, folder=folder, store=Store())
    if replan:
        given = _replanned(given, request, named=plan is not None)
    spec = None if given.origin is None else given.origin.spec
    if model is not None:
        spec = parse_model_spec(str(model), params=params, inputs=inputs)
        choice.refuse_another_model(given, spec)
    if request.command is not None:
        spec = None
    root = workdir or project.default_workdir(None if spec is None else spec.path, folder)
    prepared = launching.prepare(
        given,
        spec,
        project.read_project(root, owner=owner),
        request,
        catalogue=choice.catalogue_of(given.origin),
        folder=folder,
        now=now or datetime.now,
        unique=unique or (lambda: uuid4().hex[:6]),
    )
    if not dryrun:
        launching.write(prepared)
    return prepared


def _replanned(given: GivenPlan, request: LaunchRequest, *, named: bool) -> GivenPlan:
    """Return a plan as it is today: its question is asked again, and the answer kept."""
    from .catalog.errors import UsageError
    from .launcher import choice
    from .launcher.plan_file import GivenPlan

    origin = given.origin
    if origin is None:
        raise UsageError(
            f"Plan {given.plan.id} does not say which question it answered.",
            fix="run `gpuplan estimate` again, without --replan here.",
        )
    spec = origin.spec
    asked = read_inputs(
        spec.named,
        params=spec.params,
        inputs=[one.text for one in spec.inputs],
        precisions=origin.question.choices.precisions,
        machine=origin.question.machine,
        offers=None if origin.offers is None else Path(origin.offers),
        timeout_s=spec.timeout_s,
    )
    answer = estimate(asked, origin.question)
    keep(answer, inputs=asked, question=origin.question, folder=Path(origin.folder))
    return GivenPlan(
        plan=choice.same_plan(given.plan, answer)
        if named
        else choice.cheapest(answer, request, catalogue=asked.catalogue),
        workload=answer.workload,
        snapshot_date=answer.catalog.snapshot_date,
        origin=origin.model_copy(update={"files_hash": _files_hash(spec)}),
    )


def _files_hash(spec: ModelSpec) -> str:
    from .launcher.origin import files_hash

    return files_hash(spec)


def actuals(place: str | Path) -> Actuals:
    """Return what a run measured beside what its plan predicted.

    Args:
        place: The folder of the run, or its `record.json`.

    Raises:
        UsageError: There is no run record.
    """
    from .launcher.actuals import actuals as compare

    return compare(Path(place))


def doctor() -> Diagnosis:
    """Return what of this machine works with gpuplan, what does not, and how to mend it."""
    from .profiles.doctor import examine

    return examine()


def validate(records: Iterable[Path], *, hold_out: Protocol | None = None) -> Validation:
    """Return predictions for recorded runs, with their errors; see `gpuplan validate`.

    Args:
        records: files of run records.
        hold_out: predict every run with constants fitted without its fold of configurations, its
            source or its accelerator; None: with the usual ones.
    """
    from .launcher.validation import validate as judge_records

    return judge_records(records, hold_out=hold_out)


@contextmanager
def _ended(pending: PendingProfile) -> Iterator[PendingProfile]:
    """Hand out a profile that is being made; whatever goes wrong, its process does not outlive."""
    try:
        yield pending
    except BaseException:
        pending.cancel()
        raise


def _read_catalogue(offers: Path | None, machine: Machine | None) -> Catalogue:
    from .catalog.query import parse_filter
    from .catalog.snapshot import load_catalogue

    catalogue = load_catalogue(offers)
    if machine is not None:
        parse_filter(
            catalogue,
            accelerators=machine.accelerators,
            providers=[name for name in machine.providers if name != "all"],
            regions=machine.regions,
            jurisdictions=machine.jurisdictions,
            instance_types=machine.instances,
        )
    return catalogue


def _calibrated(inputs: Inputs) -> tuple[Profile, tuple[str, ...]]:
    """Return the Profile ready to predict, with what its measurement says if it has one."""
    from .profiles.measured import MeasuredProfile

    if not isinstance(inputs.profile, MeasuredProfile):
        return inputs.profile, ()
    from .catalog.names import resolve_accelerator
    from .planner.calibration import calibrated

    try:
        name = resolve_accelerator(inputs.profile.measured.device.name, catalogue=inputs.catalogue)
    except GpuplanError:
        name = ""
    return calibrated(inputs.profile, inputs.catalogue.accelerators.get(name))


def _workload(traced: Profile) -> WorkloadFacts:
    return WorkloadFacts(
        name=traced.name,
        parameters=traced.parameters,
        trainable_parameters=traced.trainable_parameters,
        flops_per_sample=traced.flops.per_sample,
        tokens_per_sample=traced.tokens_per_sample,
    )


def _own_precision(traced: Profile) -> Precision:
    named: dict[str | None, Precision] = {precision: precision for precision in PRECISIONS}
    return named.get(traced.file_precision, "fp32")


def _utc_now() -> datetime:
    return datetime.now(UTC)
