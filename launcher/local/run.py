"""Train a model on this machine, as its plan says or as the file itself asks.

prepare(…)  →  Prepared     everything checked that can be, nothing started
execute(…)  →  RunResult    the job folder written, the processes run, what they left read back
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from ...catalog.errors import GpuplanError, UsageError
from ...catalog.snapshot import Catalogue
from ...planner.plan.plan import Plan
from ...profiles.user_model.spec import ModelSpec
from ..bundle import PACKAGE, write_job_folder
from ..commit import commit_of
from ..process_group import Ended, run_child
from ..runner.job import Job, execution_of
from ..store.sourced_plan import SourcedPlan
from ..trainer_arguments import trainer_words
from ..training_data import local_data, refuse_unreadable_source
from . import run_folder
from .host_memory import refuse_too_large
from .machine import core_count, device_names
from .options import (
    Note,
    chosen_device,
    chosen_steps,
    is_planned,
    note_stand_in,
    planned_peak_flops,
    process_count,
    refuse_contradictions,
)
from .run_outcome import LostProcessError, outcome
from .run_request import RunRequest, RunResult
from .trackers import refuse_missing_trackers
from .weights import refuse_unreadable_weights, with_absolute_weights

GRACE_S = 600
"""How long stopped processes may take to write their checkpoint; a second signal is faster."""
PARENT_VARIABLE = "GPUPLAN_RUN"
"""As `runner/main.py` has it."""


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
    is_new_folder: bool
    """Whether the folder of results was made for it."""
    anyway: bool
    """Whether it starts though this machine surely cannot hold the model."""


def prepare(
    spec: ModelSpec,
    given: SourcedPlan | None,
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
        on_note: called with messages for the user.

    Raises:
        UsageError: what is asked for contradicts itself, the plan or this machine.
        NoFeasiblePlanError: the plan is not run by gpuplan.
    """
    refuse_contradictions(spec, given, request)
    refuse_missing_trackers(request.training)
    refuse_unreadable_source(spec)
    on_note(f"data: {local_data(spec, synthetic=request.synthetic)}")
    not_read = trainer_words(spec)
    if not_read is not None:
        on_note(not_read)
    plan = None if given is None else given.plan
    devices = () if request.device == "cpu" else device_names()
    device = chosen_device(request, plan, devices)
    nproc = process_count(request, plan, device, len(devices))
    note_stand_in(plan, device, nproc, on_note)
    name = f"{spec.name}-{now():%Y%m%d-%H%M%S}"
    out_dir = (request.out_dir or run_folder.new_folder(name)).absolute()
    job = Job(
        spec=spec,
        plan=None if plan is None else plan.model_dump(mode="json"),
        out_dir=out_dir,
        steps=chosen_steps(request, plan, on_note),
        execution=None,
        micro_batch=request.micro_batch,
        seed=request.seed,
        device=device,
        workers=request.workers,
        synthetic=request.synthetic,
        clip_grad_norm=request.clip_grad_norm,
        training=with_absolute_weights(request.training),
        checkpoint=run_folder.absolute(request.checkpoint, out_dir),
        run_id=f"{name}-{uuid4().hex[:6]}",
        commit=commit_of(spec.path),
        timeout_s=request.timeout_s,
    )
    job.training.refuse_beyond(job.steps)
    if job.plan is not None:
        job.training.refuse_samples_of_stages(execution_of(job.plan).layout.pipeline)
    refuse_unreadable_weights(job)
    is_new_folder = run_folder.make(out_dir)  # Last: what is refused leaves no folder behind.
    return Prepared(
        job=_with_plan(job, given, devices[:nproc], catalogue),
        plan=plan,
        nproc=nproc,
        device=device,
        master_port=request.master_port,
        verbose=request.verbose,
        quiet=request.quiet,
        is_new_folder=is_new_folder,
        anyway=request.anyway,
    )


def _with_plan(
    job: Job, given: SourcedPlan | None, devices: tuple[str, ...], catalogue: Catalogue
) -> Job:
    """Return the job with what a plan knows of the model, and of the devices that are its own."""
    if given is None:
        return job
    if given.workload is not None:
        job = replace(
            job,
            parameters=given.workload.parameters,
            flops_per_sample=given.workload.flops_per_sample,
        )
    if not is_planned(given.plan, devices, catalogue):
        return job
    return replace(
        job,
        peak_flops=planned_peak_flops(given.plan, catalogue),
        usd_per_hour=given.plan.usd_per_hour,
    )


def execute(prepared: Prepared, *, on_note: Note) -> RunResult:
    """Run the processes until the last step, a signal or an error.

    Raises:
        UsageError: the model is too large for the memory of this machine.
        GpuplanError: what went wrong, with the exit code it deserves.
    """
    job = prepared.job
    done = run_folder.already_done(job)
    if done is not None:
        return _result(prepared, done, began=False)
    anyway = on_note if prepared.anyway else None
    try:
        refuse_too_large(job, prepared.nproc, prepared.device, anyway=anyway)
        shown = run_folder.shown_path(job.out_dir)
        same = f"the same command with --out-dir {shown}"
        on_note(f"Results go to {shown}; {same} continues the run.")
        with run_folder.held(job.out_dir) as lock:
            ended = _run_processes(prepared, lock, on_note)
    except BaseException:  # Ctrl-C too.
        if prepared.is_new_folder:
            run_folder.unmake(job.out_dir)
        raise
    stopped_by = ended.signals[0] if ended.signals else None
    try:
        record = outcome(job, code=ended.code, stopped_by=stopped_by)
    except GpuplanError as error:
        _note_traceback(job, error, prepared.verbose, on_note)
        _note_going_on(job, error, on_note)
        raise
    stopped = stopped_by if record.get("stopped") else None
    return _result(prepared, record, stopped_by=stopped)


def _run_processes(prepared: Prepared, lock: tuple[int, ...], on_note: Note) -> Ended:
    job = prepared.job
    folder = job.out_dir / "job"
    run_folder.clean(job.out_dir)
    try:
        write_job_folder(folder, job)
    except OSError as error:
        run_folder.remove(folder)
        raise UsageError(
            f"{run_folder.shown_path(folder)} cannot be written: {error.strerror or error}.",
            fix="free some space there, or give another place with --out-dir.",
        ) from None
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
    is_told_whole = isinstance(error, LostProcessError) or error.exit_code != 1
    if path.exists() and not is_told_whole:
        on_note(
            path.read_text(encoding="utf-8").rstrip()
            if verbose
            else f"The whole traceback is in {run_folder.shown_path(path)}."
        )


def _note_going_on(job: Job, error: GpuplanError, on_note: Note) -> None:
    """Say which command goes on, and from where, unless the error says it itself."""
    kept = run_folder.checkpoints(job.checkpoints)[-1:]
    if kept and "the same command continues" not in (error.fix or ""):
        step, shown = run_folder.step_of(kept[0]), run_folder.shown_path(job.out_dir)
        on_note(
            f"The same command with --out-dir {shown} continues from the checkpoint of step"
            f" {step:,}."
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
