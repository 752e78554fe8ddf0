"""What the first process writes and shows of every step."""

from __future__ import annotations

import time

from ....profiles.user_model.workload import Workload, optional_function
from ..build import Trainer
from ..job import Job
from .metrics import Metrics, MetricsFile, ProgressLine, Throughput, memory_metrics


class Report:
    """What the first process writes and shows of every step."""

    def __init__(self, job: Job, workload: Workload, trainer: Trainer, world: int) -> None:
        peak = job.peak_flops
        self._device = trainer.step.parameters[0].device
        self._throughput = Throughput(
            global_batch=trainer.execution.global_batch,
            tokens_per_sample=workload.tokens_per_sample,
            flops_per_sample=job.flops_per_sample,
            peak_flops=None if peak is None else peak * world,
            usd_per_hour=job.usd_per_hour,
        )
        self._file = MetricsFile(job.out_dir, optional_function(workload, "on_metrics"))
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

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        self._line.close()
