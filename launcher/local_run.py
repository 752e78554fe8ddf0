"""Train a model on this machine, as its plan says or as the file itself asks.

prepare(…)  →  Prepared     everything looked at that can be, nothing started
execute(…)  →  RunResult    the job folder written, the processes run, what they left read back
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from ..catalog.errors import GpuplanError, NoFeasiblePlanError, UsageError
from ..catalog.names import resolve_accelerator
from ..catalog.snapshot import Catalogue
from ..catalog.types import CPU_PREFIX
from ..planner.device import peak_flops
from ..planner.plan import Plan
from ..profiles.spec import ModelSpec
from . import run_folder
from .bundle import PACKAGE, write_job_folder
from .child import Ended, run_child
from .local_machine import core_count, device_names, is_port_free
from .plan_file import GivenPlan
from .run_request import DEFAULT_STEPS, RunRequest, RunResult
from .runner.job import Job, execution_of

GRACE_S = 600
"""How long stopped processes may take to write their checkpoint; a second signal is faster."""
PARENT_VARIABLE = "GPUPLAN_RUN"
"""As `runner/main.py` has it."""
Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that can be started."""

    job: Job
    plan: Plan | None
    nproc: int
    device: str
    master_port: int | None
    verbose: bool
    quiet: bool


def prepare(
    spec: ModelSpec,
    given: GivenPlan | None,
    request: RunRequest,
    *,
    catalogue: Catalogue,
    now: Callable[[], datetime],
    on_note: Note,
) -> Prepared:
    """Return a run, checked as far as can be without loading the model.

    Args:
        spec: the model.
        given: the plan; None runs the file as it asks itself, data-parallel over the processes.
        request: how.
        catalogue: knows accelerators by the names that drivers give them.
        now: the clock, for names.
        on_note: told what a person should know.

    Raises:
        UsageError: what is asked for contradicts itself, the plan or this machine.
        NoFeasiblePlanError: the plan is not run by gpuplan.
    """
    _check_request(spec, given, request)
    plan = None if given is None else given.plan
    devices = () if request.device == "cpu" else device_names()
    device = _device(request, plan, devices)
    nproc = _process_count(request, plan, device, len(devices))
    _note_stand_in(plan, device, nproc, on_note)
    stamp = f"{now():%Y%m%d-%H%M%S}"
    out_dir = (request.out_dir or run_folder.new_folder(f"{spec.name}-{stamp}")).absolute()
    run_folder.make(out_dir)
    is_planned = plan is not None and _is_planned(plan, devices[:nproc], catalogue)
    steps = _steps(request, plan, on_note)
    workload = None if given is None else given.workload
    job = Job(
        spec=spec,
        plan=None if plan is None else plan.model_dump(mode="json"),
        out_dir=out_dir,
        steps=steps,
        execution=None,
        micro_batch=request.micro_batch,
        seed=request.seed,
        device=device,
        workers=request.workers,
        synthetic=request.synthetic,
        clip_grad_norm=request.clip_grad_norm,
        checkpoint=run_folder.absolute(request.checkpoint, out_dir),
        parameters=None if workload is None else workload.parameters,
        flops_per_sample=None if workload is None else workload.flops_per_sample,
        peak_flops=_peak(plan, catalogue) if plan is not None and is_planned else None,
        usd_per_hour=plan.usd_per_hour if plan is not None and is_planned else None,
        run_id=f"{spec.name}-{stamp}-{uuid4().hex[:6]}",
        timeout_s=request.timeout_s,
    )
    if job.plan is not None:
        execution_of(job.plan)
    return Prepared(
        job=job,
        plan=plan,
        nproc=nproc,
        device=device,
        master_port=request.master_port,
        verbose=request.verbose,
        quiet=request.quiet,
    )


def execute(prepared: Prepared, *, on_note: Note) -> RunResult:
    """Run the processes until the last step, a signal or an error.

    Raises:
        GpuplanError: what went wrong, with the exit code it deserves.
    """
    job = prepared.job
    done = run_folder.already_done(job)
    if done is not None:
        return _result(prepared, done, began=False)
    shown = run_folder.shown_path(job.out_dir)
    on_note(f"Results go to {shown}; the same command with --out-dir {shown} continues the run.")
    with run_folder.held(job.out_dir) as lock:
        ended = _run_processes(prepared, lock, on_note)
    stopped_by = ended.signals[0] if ended.signals else None
    try:
        record = run_folder.outcome(job, code=ended.code, stopped_by=stopped_by)
    except GpuplanError as error:
        _note_traceback(job, error, prepared.verbose, on_note)
        raise
    stopped = stopped_by if record.get("stopped") else None
    return _result(prepared, record, stopped_by=stopped)


def _run_processes(prepared: Prepared, lock: tuple[int, ...], on_note: Note) -> Ended:
    job = prepared.job
    folder = job.out_dir / "job"
    run_folder.clean(job.out_dir)
    write_job_folder(folder, job)
    with (
        run_folder.apart_from_earlier(job, on_note),
        run_folder.output_of(job.out_dir, quiet=prepared.quiet) as output,
    ):
        return run_child(
            _arguments(prepared, folder),
            environment=_environment(prepared, folder),
            mark=(PARENT_VARIABLE, job.run_id),
            output=output,
            keep_open=lock,
            on_signal=lambda number: on_note(_stopping(number)),
        )


def _note_traceback(job: Job, error: GpuplanError, verbose: bool, on_note: Note) -> None:
    """Say where more is written of a failure that is not a plain mistake in a command."""
    path = job.out_dir / "traceback.txt"
    is_told_whole = isinstance(error, run_folder.LostProcessError) or error.exit_code != 1
    if path.exists() and not is_told_whole:
        on_note(
            path.read_text(encoding="utf-8").rstrip()
            if verbose
            else f"The whole traceback is in {run_folder.shown_path(path)}."
        )


def _result(
    prepared: Prepared, record: dict, *, stopped_by: int | None = None, began: bool = True
) -> RunResult:
    job = prepared.job
    return RunResult(
        folder=job.out_dir,
        record=record,
        plan=prepared.plan,
        steps=job.steps,
        tokens_per_sample=run_folder.tokens_per_sample(job.out_dir),
        checkpoint=next(iter(run_folder.checkpoints(job.checkpoints)[-1:]), None),
        stopped_by=stopped_by,
        began=began,
    )


def _check_request(spec: ModelSpec, given: GivenPlan | None, request: RunRequest) -> None:
    if spec.kind == "profile":
        raise UsageError(
            f"{spec.text} is a written Profile: it has no code to train.",
            fix="give the model file itself.",
        )
    port = request.master_port
    if port is not None and not is_port_free(port):
        raise UsageError(
            f"Port {port} is in use on this machine.",
            fix="give another --master-port, or leave it out to take a free one.",
        )
    if given is None:
        return
    plan = given.plan
    if request.micro_batch is not None:
        raise UsageError(
            f"--micro-batch {request.micro_batch} contradicts the plan, whose micro-batch is"
            f" {plan.micro_batch}.",
            fix="leave it out, or make a plan with `gpuplan estimate --micro-batch`.",
        )
    if plan.needs_port:
        raise NoFeasiblePlanError(
            f"{plan.offer.accelerator} runs torch code only after a port to XLA; such a plan is"
            " not run.",
            fix="choose a plan on other accelerators with `gpuplan plans`.",
        )
    asked = request.nproc
    if asked is not None and asked != plan.layout.accelerators:
        raise UsageError(
            f"--nproc {asked} contradicts the plan, which is for {plan.layout.accelerators}"
            f" processes ({plan.layout}).",
            fix="leave it out, or make a plan with `gpuplan estimate --layout`.",
        )


def _device(request: RunRequest, plan: Plan | None, devices: tuple[str, ...]) -> str:
    if request.device is not None:
        if request.device == "cuda" and not devices:
            raise UsageError(
                "torch sees no CUDA device here.",
                fix="run `gpuplan doctor` to see why, or give --device cpu.",
            )
        return request.device
    on_processor = plan is not None and plan.offer.accelerator.startswith(CPU_PREFIX)
    return "cuda" if devices and not on_processor else "cpu"


def _process_count(request: RunRequest, plan: Plan | None, device: str, devices: int) -> int:
    planned = None if plan is None else plan.layout.accelerators
    count = planned or request.nproc or (devices if device == "cuda" else 1)
    if device == "cuda" and count > devices:
        asked = f"The plan is for {count}" if planned else f"--nproc {count} takes as many"
        here = f"{devices} device{'' if devices == 1 else 's'}"
        raise UsageError(
            f"{asked} accelerators; this machine has {here}.",
            fix=f"plan for it with `gpuplan estimate --layout dp{devices}`, or give --device cpu"
            " to rehearse the plan on the processor."
            if planned
            else f"give --nproc {devices}.",
        )
    return count


def _note_stand_in(plan: Plan | None, device: str, nproc: int, on_note: Note) -> None:
    """Say what a run on processors is worth, and how crowded it will be."""
    if device != "cpu":
        return
    cores = core_count()
    if nproc > cores:
        on_note(f"{nproc} processes share {cores} cores: every step will be slow.")
    if plan is not None and not plan.offer.accelerator.startswith(CPU_PREFIX):
        on_note(
            f"Running on the processor: the plan is rehearsed, and its times say nothing of"
            f" {plan.offer.accelerator}."
        )


def _steps(request: RunRequest, plan: Plan | None, on_note: Note) -> int:
    if request.steps is not None:
        return request.steps
    if plan is not None and plan.run is not None:
        on_note(f"Taking the plan's {plan.run.steps:,} steps; --steps gives another number.")
        return plan.run.steps
    on_note(f"Taking {DEFAULT_STEPS} steps; --steps gives another number.")
    return DEFAULT_STEPS


def _is_planned(plan: Plan, names: tuple[str, ...], catalogue: Catalogue) -> bool:
    """Return whether the devices here are those of the plan."""
    try:
        here = {resolve_accelerator(name, catalogue=catalogue) for name in names}
    except GpuplanError:
        return False
    return here == {plan.offer.accelerator}


def _peak(plan: Plan, catalogue: Catalogue) -> float | None:
    accelerator = catalogue.accelerators.get(plan.offer.accelerator)
    return None if accelerator is None else peak_flops(accelerator, plan.precision)


def _arguments(prepared: Prepared, folder: Path) -> list[str]:
    python = [sys.executable, "-m"]
    if prepared.nproc == 1:
        return [*python, PACKAGE, str(folder)]
    words = [f"{PACKAGE}.launcher.runner.agent", str(folder), f"--nproc={prepared.nproc}"]
    words += [f"--out-dir={prepared.job.out_dir}", f"--grace-s={GRACE_S}"]
    if prepared.master_port is not None:
        words.append(f"--port={prepared.master_port}")
    return [*python, *words, *(["--verbose"] if prepared.verbose else [])]


def _environment(prepared: Prepared, folder: Path) -> dict[str, str]:
    variables = dict(os.environ)
    found = variables.get("PYTHONPATH")
    variables["PYTHONPATH"] = os.pathsep.join([str(folder), *([found] if found else [])])
    if prepared.nproc > 1:
        # torch takes all cores in every process, and torchrun one; neither is what is meant.
        variables.setdefault("OMP_NUM_THREADS", str(max(1, core_count() // prepared.nproc)))
    if not prepared.verbose:
        variables.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if prepared.device == "cpu":
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return variables


def _stopping(number: int) -> str:
    what = "Interrupted" if number == 2 else "Told to stop"
    return f"{what}: ending this step and writing a checkpoint; once more ends it at once."
