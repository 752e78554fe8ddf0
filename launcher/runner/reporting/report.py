"""What the first process writes and shows of every step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from ....profiles.user_model.several_optimizers import optimizer_name
from ....profiles.user_model.workload import Workload, optional_function
from ..build import Trainer
from ..job import Job
from ..training_options import CONSTANT
from .metrics import Metrics, MetricsFile, ProgressLine, Throughput, memory_metrics, say
from .trackers.trackers import numbers_of, open_trackers


class Report:
    """What the first process writes and shows of every step."""

    def __init__(self, job: Job, workload: Workload, trainer: Trainer, world: int) -> None:
        peak = job.peak_flops
        self._device = trainer.step.device
        self._throughput = Throughput(
            global_batch=trainer.execution.global_batch,
            tokens_per_sample=workload.tokens_per_sample,
            flops_per_sample=job.flops_per_sample,
            peak_flops=None if peak is None else peak * world,
            usd_per_hour=job.usd_per_hour,
        )
        self._file = MetricsFile(job.out_dir, optional_function(workload, "on_metrics"))
        facts = facts_of(job, workload, trainer, world)
        self._file.introduce(facts)
        self._trackers = open_trackers(job.training.tracker, job.out_dir, facts, say)
        self._line = ProgressLine(job)

    def step(
        self,
        step: int,
        *,
        loss: float,
        step_s: float,
        parts_s: dict[str, float],
        waited_s: float,
        norm: float | None,
        rate: float | None,
        elapsed_s: float,
        write_s: float | None,
        typical_s: float,
    ) -> None:
        """Write one line of metrics, and show it when it is time."""
        metrics: Metrics = {
            "step": step,
            "time": time.time(),
            "loss": loss,
            "step_time_s": step_s,
            "parts_s": parts_s,
            "input_wait_s": waited_s,
            "gradient_norm": norm,
            "learning_rate": rate,
            "elapsed_s": elapsed_s,
            "checkpoint_write_s": write_s,
            **self._throughput.of(step_s, elapsed_s),
            **memory_metrics(self._device),
        }
        self._file.write(metrics)
        self._line.show(metrics, typical_s=typical_s)

    def evaluation(self, step: int, found: Mapping[str, float]) -> None:
        """Add the numbers of an evaluation to TensorBoard; trackers read its file."""
        self._file.draw({"step": step, **numbers_of(found, "evaluation/")})

    def close(self, *, failed: bool = False) -> None:
        """Close the files; trackers are told whether the run failed."""
        self._file.close()
        self._line.close()
        for tracker in self._trackers:
            tracker.close(failed=failed)


def amount_facts(
    steps: int, global_batch: int, tokens_per_sample: float | None
) -> dict[str, float | None]:
    """Return how much is trained.

    >>> amount_facts(100, 8, 1024)
    {'samples': 800, 'tokens': 819200}
    """
    samples = steps * global_batch
    tokens = None if tokens_per_sample is None else samples * tokens_per_sample
    return {"samples": samples, "tokens": tokens}


def schedule_words(job: Job, workload: Workload) -> str:
    """Return how the learning rate goes: what was asked for, else that of the file."""
    if workload.build_scheduler is not None:
        return f"of {workload.name}"
    return job.training.schedule or CONSTANT


def facts_of(job: Job, workload: Workload, trainer: Trainer, world: int) -> dict[str, Any]:
    """Return what is known of a run before its first step, as trackers show it."""
    execution = trainer.execution
    return {
        "model": workload.name,
        **{f"param.{name}": value for name, value in job.spec.params.items()},
        "parameters": trainer.parameters,
        "steps": job.steps,
        **amount_facts(job.steps, execution.global_batch, workload.tokens_per_sample),
        "seed": job.seed,
        "processes": world,
        "layout": str(execution.layout),
        "precision": execution.precision,
        "micro_batch": execution.micro_batch,
        "grad_accum": execution.grad_accum,
        "global_batch": execution.global_batch,
        "recompute": execution.recompute,
        "compile": execution.compile,
        "frozen_precision": execution.frozen_precision,
        "optimizer": optimizer_name(trainer.optimizer),
        "schedule": schedule_words(job, workload),
        "warmup_steps": job.training.warmup_steps,
        "weights": job.training.weights,
        "clip_grad_norm": job.clip_grad_norm,
        "git_commit": job.commit,
        "torch": torch.__version__,
        "plan": (job.plan or {}).get("id"),
        "predicted_step_time_s": ((job.plan or {}).get("step_time_s") or {}).get("value"),
    }
