"""The training itself: run here, exported, and what it took beside what was predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .models.inputs import model as model_spec

if TYPE_CHECKING:
    from ..launcher.local.actuals import Actuals
    from ..launcher.local.export_weights import ExportedWeights
    from ..launcher.local.run_request import RunRequest, RunResult
    from ..launcher.prepare.task.export import Exported
    from ..launcher.runner.weights.formats import WeightDtype, WeightFormat
    from ..planner.plan.plan import Plan
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


def actuals(place: str | Path) -> Actuals:
    """Return what a run measured beside what its plan predicted.

    Args:
        place: The folder of the run, or its `record.json`.

    Raises:
        UsageError: There is no run record.
    """
    from ..launcher.local.actuals import actuals as compare

    return compare(Path(place))
