"""Run real training steps of one case and measure them: the process behind `gpu_evidence.py`.

Reads one case a line from standard input and answers each with one line of JSON; the first line
says what the machine is. Needs the standard library, torch and this checkout, nothing installed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import torch

from .cases import Case
from .meters import Meter, make_meter
from .step import TrainingStep

WARM_UP_STEPS = 4
"""Memory is allocated and kernels are chosen in the first; the optimizer makes its state there."""
COMPILED_WARM_UP_STEPS = 6
MIN_STEPS, MAX_STEPS = 8, 60
OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a case."""

    kind: str
    """"measured", "oom" or "failed"."""
    measured: dict[str, Any]
    facts: dict[str, Any]
    """What was built: parameters, optimizer, repeated blocks."""
    error: str | None = None
    clean: bool = True
    """Whether the process may measure another case: nothing of this one is left on the device."""

    def to_json(self) -> str:
        """Return the outcome as one line of JSON."""
        return json.dumps(vars(self))


def main() -> None:
    """Answer the cases of standard input until it ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--measure-s", type=float, required=True)
    options = parser.parse_args()
    # What a model file prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("gpu_evidence: torch sees no CUDA device here")
    meter = make_meter(options.device)
    print(json.dumps(meter.environment()), file=answers, flush=True)
    for line in sys.stdin:
        outcome = run_case(Case.from_json(line), meter, measure_s=options.measure_s)
        print(outcome.to_json(), file=answers, flush=True)


def run_case(case: Case, meter: Meter, *, measure_s: float) -> Outcome:
    """Return what one case took, or that it did not fit, or why it failed.

    Args:
        case: What to run.
        meter: The device and its clocks.
        measure_s: Seconds of steps to measure, after warm-up.
    """
    before_bytes = meter.allocated_bytes()
    facts: dict[str, Any] = {}
    kind, measured, error = "measured", {}, None
    try:
        measured = _measure(case, meter, facts, measure_s)
    except Exception as raised:
        kind = "oom" if is_out_of_memory(raised) else "failed"
        error = _in_one_line(raised)
        if kind == "failed":
            traceback.print_exc()
        # Its frames hold the tensors of the step.
        traceback.clear_frames(raised.__traceback__)
        raised.__traceback__ = raised.__context__ = None
    _forget(case)
    left_bytes = meter.release()
    if kind == "measured" and left_bytes is not None:
        measured["library_gib"] = _gib(left_bytes)
    clean = kind == "measured" and not case.compile and meter.is_clean(before_bytes)
    return Outcome(kind=kind, measured=measured, facts=facts, error=error, clean=clean)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the device (or a library on it) had no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        words in str(error) for words in OUT_OF_MEMORY_WORDS
    )


def _measure(case: Case, meter: Meter, facts: dict[str, Any], measure_s: float) -> dict[str, Any]:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = case.precision == "tf32"
    step = TrainingStep(case, meter.device)
    facts |= {
        "parameters": sum(p.numel() for p in step.module.parameters()),
        "trainable_parameters": sum(p.numel() for p in step.module.parameters() if p.requires_grad),
        "optimizer_built": type(step.optimizer).__name__,
        "recomputed_blocks": step.blocks,
        "built_in_fp32": step.built_in_fp32,
    }
    for _ in range(COMPILED_WARM_UP_STEPS if case.compile else WARM_UP_STEPS):
        step()
    meter.synchronize()
    plateaus = _plateaus(step, meter)
    estimate_s = meter.interval_s(step)
    steps = max(MIN_STEPS, min(MAX_STEPS, round(measure_s / max(estimate_s, 1e-6))))
    scale = step.loss_scale()
    meter.reset_peak()
    times_s, wall_s = meter.intervals_s(step, steps)
    peak = meter.peak()
    under_load = meter.under_load(step)
    loss = float(step.forward().detach())
    return {
        **summary_of(times_s),
        "wall_step_time_s": wall_s / steps,
        **peak,
        **plateaus,
        "memory_meaning": "allocated" if peak.get("peak_memory_gib") else None,
        "oom": False,
        "final_loss": loss if abs(loss) < float("inf") else None,
        "optimizer_steps_skipped": step.loss_scale() != scale,
        "under_load": under_load,
    }


def summary_of(times_s: list[float]) -> dict[str, Any]:
    """Return the median step time in seconds, how it spreads, and of how many steps."""
    ordered = sorted(times_s)

    def quantile(part: float) -> float:
        place = part * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    return {
        "step_time_s": quantile(0.5),
        "step_time_p10_s": quantile(0.1),
        "step_time_p90_s": quantile(0.9),
        "steps": len(ordered),
    }


def _plateaus(step: TrainingStep, meter: Meter) -> dict[str, Any]:
    """Return GiB allocated between two steps, and after the forward pass."""
    persistent_bytes = meter.allocated_bytes()
    loss = step.forward()
    forward_bytes = meter.allocated_bytes()
    step.backward(loss)
    del loss
    step.update()
    if persistent_bytes is None or forward_bytes is None:
        return {}
    return {"persistent_gib": _gib(persistent_bytes), "forward_end_gib": _gib(forward_bytes)}


def _forget(case: Case) -> None:
    """Drop what torch keeps of a model that is gone."""
    if case.compile:
        torch.compiler.reset()
    gc.collect()


def _gib(size_bytes: int) -> float:
    return size_bytes / 2**30


def _in_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400]


if __name__ == "__main__":
    main()
