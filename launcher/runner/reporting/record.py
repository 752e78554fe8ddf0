"""What remains of a run: `record.json`, one run record as `gpuplan validate` reads it."""

from __future__ import annotations

import json
import os
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ....catalog.files import write_atomically
from ....catalog.units import GIB
from ....profiles.user_model.several_optimizers import optimizer_name
from ....profiles.user_model.workload import Workload
from ..build import Trainer
from ..job import Job
from ..processes.processes import Processes
from .outcome import Outcome

RECORD_FILE = "record.json"
NETWORK_FILE = "network.json"
"""Of `network_check.py`."""
MEASURED = (
    "measured",
    "measured_parts_s",
    "measured_peak_allocated_bytes",
    "measured_peak_reserved_bytes",
)


def leave_record(
    job: Job, workload: Workload, trainer: Trainer, processes: Processes, outcome: Outcome
) -> None:
    """Write the run record, with the largest peak of all processes."""
    peaks = _peaks(processes)
    if processes.is_first:
        record = run_record(job, workload, trainer, processes, outcome, peaks)
        network = _json(job.out_dir / NETWORK_FILE)
        if network.get("run_id") == job.run_id:
            record["network"] = {key: network[key] for key in network if key != "run_id"}
        if outcome.last_loss is None:
            record |= _measured_before(job, outcome.step)
        write_atomically(job.out_dir / RECORD_FILE, json.dumps(record) + "\n")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def run_record(
    job: Job,
    workload: Workload,
    trainer: Trainer,
    processes: Processes,
    outcome: Outcome,
    peaks: dict[str, float | None],
) -> dict[str, Any]:
    """Return the record of a run; what was not measured is null."""
    execution, plan = trainer.execution, job.plan or {}
    return {
        "id": job.run_id,
        "source": "gpuplan run",
        "source_group": "own",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "model": os.path.relpath(job.spec.path, job.out_dir),
        "model_name": workload.name,
        "params": dict(job.spec.params),
        "accelerator": _device_name(processes),
        "accelerators": processes.world,
        "per_node": processes.world // processes.nodes,
        "layout": asdict(execution.layout),
        "precision": execution.precision,
        "micro_batch": execution.micro_batch,
        "grad_accum": execution.grad_accum,
        "global_batch": execution.global_batch,
        "recompute": execution.recompute,
        "recompute_share": trainer.recompute_share,
        "compile": execution.compile,
        "stack": execution.stack,
        "optimizer": plan.get("optimizer") or optimizer_name(trainer.optimizer).lower(),
        "offload": False,
        "frozen_precision": execution.frozen_precision,
        # No variable of the loop holds the logits: `compute_loss` returns the loss alone.
        "features": [
            "freed-logits",
            "bucket-views",
            *(["reduce-bf16"] if execution.reduce_dtype == "bf16" else []),
            *(["gathered-once"] if execution.layout.zero_stage == 2 else []),
        ],
        **_measured(outcome, peaks),
        "assumed": [],
        "plan": plan.get("id"),
        "steps": outcome.step,
        "stopped": outcome.stopped,
        "data_ended": outcome.data_ended,
        "elapsed_s": outcome.elapsed_s,
        "usd": None if job.usd_per_hour is None else job.usd_per_hour * outcome.elapsed_s / 3600,
        "last_loss": outcome.last_loss,
        "versions": {"torch": torch.__version__},
    }


def _measured_before(job: Job, step: int) -> dict[str, Any]:
    """Return what a record says that an earlier start left, for one that had no step to take."""
    try:
        earlier = json.loads((job.out_dir / RECORD_FILE).read_text(encoding="utf-8"))
        kept = {name: earlier[name] for name in ("last_loss", *MEASURED)}
        return kept if earlier["steps"] == step else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _measured(outcome: Outcome, peaks: dict[str, float | None]) -> dict[str, Any]:
    reserved = peaks["reserved_bytes"]
    return {
        "measured": {
            "step_time_s": _median(outcome.times_s),
            "peak_memory_gib": None if reserved is None else reserved / GIB,
            "memory_meaning": "reserved" if reserved is not None else "unknown",
            "oom": False,
        },
        "measured_parts_s": {part: _median(times) for part, times in outcome.parts_s.items()},
        "measured_peak_allocated_bytes": peaks["allocated_bytes"],
        "measured_peak_reserved_bytes": reserved,
    }


def _peaks(processes: Processes) -> dict[str, float | None]:
    if processes.device.type != "cuda":
        return {"allocated_bytes": None, "reserved_bytes": None}
    peaks = torch.tensor(
        [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()],
        dtype=torch.float64,
    )
    if processes.host_group is not None:
        dist.all_reduce(peaks, dist.ReduceOp.MAX, group=processes.host_group)
    allocated, reserved = peaks.tolist()
    return {"allocated_bytes": allocated, "reserved_bytes": reserved}


def _device_name(processes: Processes) -> str:
    """Return the device as its driver calls it; the catalogue knows it by that name too."""
    return torch.cuda.get_device_name() if processes.device.type == "cuda" else "cpu"


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
