"""What is to be run: `job.json` and `plan.json` of a job folder, read and checked.

job.json    the model, how many steps, where results land; written by gpuplan
plan.json   the plan as `gpuplan show PLAN-ID --format json` prints it; missing when the file
            runs as it asks itself
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ...catalog.errors import UsageError
from ...catalog.files import write_atomically
from ...planner.plan.layout import Layout
from ...profiles.user_model.spec import ModelSpec
from .training_options import TrainingOptions

JOB_FILE = "job.json"
PLAN_FILE = "plan.json"
DEFAULT_CHECKPOINT_EVERY_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How the model is run: the part of a plan that a process carries out."""

    layout: Layout
    precision: str | None
    """Precision of the run; None leaves it to the model file."""
    micro_batch: int
    grad_accum: int = 1
    recompute: str = "none"
    recompute_layers: int | None = None
    """How many layers of the model are recomputed; None where all are, or none."""
    compile: bool = False
    stack: str = "torch-eager"
    offloaded: tuple[str, ...] = ()
    frozen_precision: str | None = None
    """How parameters that are not trained are kept; None as `precision` says."""
    reduce_dtype: str | None = None
    """What FSDP reduces gradients in beside 16-bit layers; None is fp32."""

    @property
    def global_batch(self) -> int:
        """Return the samples of one step."""
        return self.micro_batch * self.grad_accum * self.layout.data


@dataclass(frozen=True, kw_only=True)
class CheckpointPolicy:
    """When a checkpoint is written, how many stay, and where a run begins."""

    every_steps: int | None = None
    every_s: float | None = DEFAULT_CHECKPOINT_EVERY_S
    keep: int = 2
    resume: str = "auto"
    """`auto`: from the newest whole checkpoint of the folder, if any; `never`; or a checkpoint."""
    folder: str | None = None
    """Where checkpoints are written; None is `checkpoints` in the folder of results."""
    in_bucket: bool = False
    """Whether the folder is a mounted bucket: a rename copies there, and each node sees what the
    others wrote only later. Files then have their names from the start."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run, complete."""

    spec: ModelSpec
    plan: Mapping[str, Any] | None
    out_dir: Path
    steps: int
    execution: Execution | None
    """How the plan is run; None without a plan, which is data-parallel as the file asks."""
    micro_batch: int | None = None
    """Asked for without a plan; None takes the file's own default, else 1."""
    seed: int = 0
    device: str | None = None
    workers: int | None = None
    """Processes that load data, per rank; None: as many as the cores allow, at most 4."""
    synthetic: bool = False
    needs_dataset: bool = False
    """Whether to refuse a file without a data set, as machines that are paid for do."""
    clip_grad_norm: float | None = None
    checkpoint: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    training: TrainingOptions = field(default_factory=TrainingOptions)
    parameters: int | None = None
    """Parameters of the model that the plan was made for; None when not known."""
    flops_per_sample: float | None = None
    peak_flops: float | None = None
    """Dense peak of one accelerator in the plan's precision; None: MFU is not shown."""
    usd_per_hour: float | None = None
    """All nodes."""
    one_copy: bool | None = None
    """Whether only the first process builds the model; None: where host memory asks for it."""
    network_bytes_per_s: float | None = None
    """Bus bandwidth between nodes that the plan counts on; None: the network is not looked at."""
    network_check_s: float = 10.0
    """How long its all-reduces are timed before the first step."""
    run_id: str = ""
    commit: str | None = None
    """Of the repository that the model file lies in; None where that is not known."""
    timeout_s: float = 600.0
    """How long a process waits for the others in one collective."""

    @property
    def checkpoints(self) -> Path:
        """Return the folder of the checkpoints."""
        folder = self.checkpoint.folder
        return Path(folder) if folder else self.out_dir / "checkpoints"


def write_job(folder: Path, job: Job) -> None:
    """Write `job.json` and, if there is one, `plan.json`, each at once or not at all."""
    values = {one.name: getattr(job, one.name) for one in fields(job) if one.name not in _NESTED}
    values |= {
        "schema_version": "1.0",
        "spec": json.loads(job.spec.to_json()),
        "out_dir": str(job.out_dir),
        "checkpoint": asdict(job.checkpoint),
        "training": asdict(job.training),
    }
    if job.plan is None:
        (folder / PLAN_FILE).unlink(missing_ok=True)
    else:
        write_atomically(folder / PLAN_FILE, json.dumps(job.plan, indent=1) + "\n")
    write_atomically(folder / JOB_FILE, json.dumps(values, indent=1) + "\n")


def read_job(folder: Path) -> Job:
    """Return the job of a folder.

    Raises:
        UsageError: a file is missing, is no JSON, or lacks what a run needs.
    """
    values = _read(folder / JOB_FILE)
    plan = _read(folder / PLAN_FILE) if (folder / PLAN_FILE).exists() else None
    known = {one.name for one in fields(Job)}
    try:
        return Job(
            **{key: value for key, value in values.items() if key in known - _NESTED},
            spec=ModelSpec.from_json(json.dumps(values["spec"])),
            out_dir=Path(values["out_dir"]),
            checkpoint=CheckpointPolicy(**values["checkpoint"]),
            training=_training(values.get("training", {})),
            plan=plan,
            execution=None if plan is None else execution_of(plan),
        )
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"{folder / JOB_FILE} is not a job of this version of gpuplan: {error}.",
            fix="write it again with `gpuplan run`.",
        ) from None


def _training(values: Mapping[str, Any]) -> TrainingOptions:
    """Return the options of training; JSON has lists for tuples."""
    given: dict[str, Any] = {
        key: tuple(one) if isinstance(one, list) else one for key, one in values.items()
    }
    return TrainingOptions(**given)


_NESTED = {"spec", "out_dir", "checkpoint", "training", "plan", "execution"}


def execution_of(plan: Mapping[str, Any]) -> Execution:
    """Return what a plan asks of the processes.

    Raises:
        UsageError: it is not a plan.
    """
    try:
        given = plan["layout"]
        if not isinstance(given, Mapping):
            raise KeyError("layout")
        layout = Layout(
            **{one.name: given[one.name] for one in fields(Layout) if one.name in given}
        )
        return Execution(
            layout=layout,
            precision=plan["precision"],
            micro_batch=_count(plan, "micro_batch"),
            grad_accum=_count(plan, "grad_accum"),
            recompute=plan["recompute"],
            recompute_layers=_layers(plan),
            compile=bool(plan["compile"]),
            stack=plan["stack"],
            offloaded=tuple(plan.get("offloaded") or ()),
            frozen_precision=plan.get("frozen_precision"),
            reduce_dtype=plan.get("reduce_dtype"),
        )
    except ValueError as error:
        raise UsageError(
            f"The layout of the plan does not fit together: {error}.",
            fix="write the plan again with `gpuplan show PLAN-ID --format json`.",
        ) from None
    except (KeyError, TypeError, AttributeError) as error:
        missing = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise UsageError(
            f"This is not a plan: {missing!s} is missing or malformed.",
            fix="write one with `gpuplan show PLAN-ID --format json > plan.json`.",
        ) from None


def _layers(plan: Mapping[str, Any]) -> int | None:
    """Return how many layers are recomputed, which older plans do not say."""
    return None if plan.get("recompute_layers") is None else _count(plan, "recompute_layers")


def _count(plan: Mapping[str, Any], name: str) -> int:
    value = plan[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(
            f"The plan's {name} is {value!r}; it is a whole number of 1 or more.",
            fix="write the plan again with `gpuplan show PLAN-ID --format json`.",
        )
    return value


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}.",
            fix="give the folder that `gpuplan run` wrote.",
        ) from None
    except ValueError:
        raise UsageError(f"{path} is not JSON.", fix="write it again with `gpuplan run`.") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no JSON object.", fix="write it again with `gpuplan run`.")
    return found
