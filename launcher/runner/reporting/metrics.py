"""What is said while a run goes on: one JSON object a line, a progress line, TensorBoard, a hook.

    metrics.jsonl        one line a step, by the first process
    heartbeats/rank-N    one small file a process, rewritten while it lives
    tensorboard/         where the tensorboard package is installed
    trackers/            what W&B and MLflow call the run (`trackers.py`)

`on_metrics(metrics)` in the user's model file is called with the same object as each line, on the
first process: the place for a tracker of the user's own.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from ..job import Job
from .lines import open_lines
from .trackers.board import Board, writer_of_torch

HEARTBEAT_EVERY_S = 5.0
LINE_EVERY_S = 10.0
TERMINAL_EVERY_S = 0.5
Metrics = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """What turns seconds into samples, FLOPs and dollars."""

    global_batch: int
    tokens_per_sample: float | None
    flops_per_sample: float | None
    peak_flops: float | None
    """Dense peak of all accelerators together, FLOP/s."""
    usd_per_hour: float | None

    def of(self, step_s: float, elapsed_s: float) -> Metrics:
        """Return samples and tokens a second, MFU and dollars; None where it is not known."""
        samples_per_s = self.global_batch / step_s
        flops, peak = self.flops_per_sample, self.peak_flops
        tokens, usd = self.tokens_per_sample, self.usd_per_hour
        return {
            "samples_per_s": samples_per_s,
            "tokens_per_s": None if tokens is None else samples_per_s * tokens,
            "mfu": None if flops is None or peak is None else samples_per_s * flops / peak,
            "usd": None if usd is None else usd * elapsed_s / 3600,
        }


class MetricsFile:
    """`metrics.jsonl`, flushed line by line; and the two other places that hear every line."""

    def __init__(self, folder: Path, hook: Callable[[Metrics], None] | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._stream: IO[str] = open_lines(folder / "metrics.jsonl")
        self._board = Board(folder, writer_of_torch(), say)
        self._hook = hook

    def introduce(self, facts: Mapping[str, Any]) -> None:
        """Show what is known of the run beside its curves."""
        self._board.introduce(facts)

    def write(self, metrics: Metrics) -> None:
        """Write one line. What is not a number is written as null, as JSON has no NaN."""
        self._stream.write(json.dumps(_plain(metrics)) + "\n")
        self._stream.flush()
        self._board.write(metrics)
        if self._hook is not None:
            self._hook(metrics)

    def draw(self, numbers: Metrics) -> None:
        """Add points to the curves alone."""
        self._board.write(numbers)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self._board.close()


class Heartbeat:
    """Tells, in a file of its own, that a process lives and how far it is."""

    def __init__(self, folder: Path, rank: int, clock: Callable[[], float] = time.time) -> None:
        self._path = folder / "heartbeats" / f"rank-{rank:05d}"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._last_s = -math.inf

    def beat(self, step: int, *, at_once: bool = False) -> None:
        """Say that a step is done, at most every few seconds unless it is to be said at once."""
        now_s = self._clock()
        if now_s - self._last_s < HEARTBEAT_EVERY_S and not at_once:
            return
        self._last_s = now_s
        self._path.write_text(json.dumps({"step": step, "time": now_s}) + "\n", encoding="utf-8")


class ProgressLine:
    """Predicted beside measured, and the time left: one line that stays on a terminal."""

    def __init__(
        self, job: Job, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._steps = job.steps
        step = (job.plan or {}).get("step_time_s") or {}
        self._predicted_s: float | None = step.get("value")
        self._clock = clock
        self._stays = self._stream.isatty()
        self._last_s = -math.inf
        self._is_open = False

    def show(self, metrics: Mapping[str, Any], *, typical_s: float) -> None:
        """Show how far the run is, if the last time was long enough ago."""
        now_s = self._clock()
        is_last = metrics["step"] == self._steps
        every_s = TERMINAL_EVERY_S if self._stays else LINE_EVERY_S
        if now_s - self._last_s < every_s and not is_last:
            return
        self._last_s = now_s
        text = self.text(metrics, typical_s=typical_s)
        self._stream.write(f"\r\x1b[K{text}" if self._stays else text + "\n")
        self._stream.flush()
        self._is_open = self._stays

    def close(self) -> None:
        """End the line, so that what is said next begins one of its own."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
            self._is_open = False

    def text(self, metrics: Mapping[str, Any], *, typical_s: float) -> str:
        """Return the line: all of its rates are those of the typical step, as its time is.

        Args:
            metrics: of the last step.
            typical_s: median time of the newest steps.
        """
        left_s = (self._steps - metrics["step"]) * typical_s
        pace = metrics.get("step_time_s", typical_s) / typical_s
        parts = [f"step {metrics['step']:,}/{self._steps:,}"]
        if metrics.get("loss") is not None:
            parts.append(f"loss {metrics['loss']:.4g}")
        timing = f"{duration(typical_s)} a step"
        if self._predicted_s:
            timing += f" (predicted {duration(self._predicted_s)})"
        parts.append(timing)
        for key, unit in (("tokens_per_s", "tokens/s"), ("samples_per_s", "samples/s")):
            if metrics.get(key) is not None:
                rate = metrics[key] * pace
                parts.append(f"{rate:,.0f} {unit}" if rate >= 100 else f"{rate:.3g} {unit}")
                break
        if metrics.get("mfu") is not None:
            parts.append(f"MFU {metrics['mfu'] * pace:.1%}")
        if metrics.get("usd") is not None:
            parts.append(f"${metrics['usd']:,.2f}")
        parts.append(f"{duration(left_s)} left")
        return " · ".join(parts)


def memory_metrics(device: torch.device) -> Metrics:
    """Return the peaks of the device's allocator so far, in bytes; None on a processor."""
    if device.type != "cuda":
        return {"peak_allocated_bytes": None, "peak_reserved_bytes": None}
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device),
    }


def say(text: str) -> None:
    """Print one line for the user, on standard error."""
    sys.stderr.write(f"gpuplan: {text}\n")
    sys.stderr.flush()


def duration(seconds: float) -> str:
    """Return a duration in words.

    >>> duration(0.0123), duration(75), duration(7260)
    ('12.3 ms', '1.2 min', '2.0 h')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def _plain(metrics: Metrics) -> Metrics:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in metrics.items()
    }
