"""The child process that measures: it trains a user's model for a few steps, answers, and ends.

Run as `python -m gpuplan.profiles.measure.child_main`; `child.Child` starts it.
"""

from __future__ import annotations

import gc
import json
import platform
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from typing import IO, Any

from ...catalog.errors import UsageError, UserFileError
from ...catalog.version import VERSION
from ..measured import LargestMicroBatch, Measurement, StepTime
from ..tracing_process.child_main import PROGRESS, serve
from ..user_model import failures
from ..user_model.spec import ModelSpec

WARM_UP_STEPS = 3
"""Kernels are chosen in the first, and the optimizer makes its state there."""
REPORT_EVERY_S = 0.1
LONGEST_WAIT_FOR_SAMPLE_S = 5.0
Tell = Callable[..., None]


def main() -> None:
    """Answer one request, then end with everything that the user's code started."""
    serve(answer)


def answer(request: dict[str, Any], stream: IO[bytes]) -> bytes:
    """Return the measurement as JSON after a line that is the header, or the error in it."""
    spec = ModelSpec.from_json(request["spec"])
    try:
        measured = measure(spec, request["measure"], _teller(stream))
        return b"{}\n" + measured.model_dump_json().encode()
    except BaseException as error:
        described = failures.describe_failure(error, spec.path, spec.params)
        header = {"error": failures.to_json(described), "traceback": traceback.format_exc()}
        return json.dumps(header).encode() + b"\n"


def measure(spec: ModelSpec, how: dict[str, Any], tell: Tell) -> Measurement:
    """Return what real steps of a model took on this machine.

    Args:
        spec: The model.
        how: The fields of `measure.MeasureRequest`.
        tell: Is told what is being done, how far, and of how much.
    """
    # Of what torch is made nothing is ever garbage: neither an import nor a collection between
    # steps looks for some.
    gc.disable()
    import torch

    from ..user_model.contract import load_workload
    from .device import open_device
    from .kernels import kernel_times

    gc.freeze()
    gc.enable()

    device = open_device(_device_kind(how["device"]))
    _refuse_precision(how["precision"], device.kind)
    tell("building the model")
    torch.manual_seed(0)
    workload = load_workload(spec)
    device.limit_memory()
    step = _warmed_up(workload, how, device, tell)
    device.reset_peak()
    times_s, conditions = _timed(step, device, how["steps"], tell)
    memory = device.peak()
    tell("profiling kernels")
    kernels = kernel_times(step, device.kind)
    step_time = step_time_of(times_s)
    notes: list[str] = []
    pipeline = _input(workload, how["micro_batch"], step_time.median_s, tell, notes)
    largest = None
    if how["largest_micro_batch"]:
        largest = _largest(step, tell, start=how["micro_batch"])
    facts = device.facts()
    if device.kind == "cpu":
        notes.append("measured on a processor: it says nothing of how fast an accelerator is")
    return Measurement(
        device=facts,
        precision=how["precision"],
        micro_batch=how["micro_batch"],
        recompute=how["recompute"],
        step_time=step_time,
        memory=memory,
        kernels=kernels,
        other_s=max(0.0, step_time.median_s - sum(kernel.seconds for kernel in kernels)),
        input=pipeline,
        conditions=conditions,
        largest_micro_batch=largest,
        versions=_versions(device.kind),
        notes=tuple(notes),
    )


def step_time_of(times_s: list[float]) -> StepTime:
    """Return the median, and the first and last tenth, of the measured times.

    >>> step_time_of([3.0, 1.0, 2.0]).median_s
    2.0
    """
    ordered = sorted(times_s)

    def quantile(part: float) -> float:
        place = part * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    return StepTime(
        median_s=quantile(0.5), p10_s=quantile(0.1), p90_s=quantile(0.9), steps=len(ordered)
    )


def _device_kind(asked: str | None) -> str:
    import torch

    if asked == "cuda" and not torch.cuda.is_available():
        cuda = torch.version.cuda
        built = f"its build is for CUDA {cuda}" if cuda else "it is a build without CUDA"
        raise UsageError(
            f"--device cuda: torch {torch.__version__} sees no CUDA device here ({built}).",
            fix="run `gpuplan doctor` to see why, or measure with --device cpu.",
        )
    return asked or ("cuda" if torch.cuda.is_available() else "cpu")


def _refuse_precision(precision: str, kind: str) -> None:
    if precision == "tf32" and kind == "cpu":
        raise UsageError(
            "tf32 is arithmetic of NVIDIA devices; a processor has none.",
            fix="measure with --precision fp32.",
        )


def _warmed_up(workload: Any, how: dict[str, Any], device: Any, tell: Tell) -> Any:
    """Return the step at the asked micro-batch, after its first runs.

    Raises:
        UserFileError: it does not fit; the message says what does.
    """
    from ..user_model.training_step import TrainingStep, is_out_of_memory

    asked: int = how["micro_batch"]
    try:
        step = TrainingStep(
            workload,
            device=device.kind,
            precision=how["precision"],
            recompute=how["recompute"],
            micro_batch=1,
        )
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise _does_not_fit(asked, LargestMicroBatch(samples=0, fails_at=1)) from None
    with _memory_errors() as failed:
        step.use_micro_batch(asked)
        for done in range(WARM_UP_STEPS):
            tell("warming up", done, WARM_UP_STEPS)
            step()
        device.synchronize()
    if failed:
        step.forget()
        raise _does_not_fit(asked, _largest(step, tell, fails_at=asked))
    return step


@contextmanager
def _memory_errors() -> Any:
    """Give a list that is not empty when the block ran out of memory."""
    from ..user_model.training_step import is_out_of_memory

    failed: list[str] = []
    try:
        yield failed
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        failed.append(str(error))
        # Its frames hold the tensors of the step.
        traceback.clear_frames(error.__traceback__)
    gc.collect()


def _largest(
    step: Any, tell: Tell, *, start: int = 1, fails_at: int | None = None
) -> LargestMicroBatch:
    from .largest_micro_batch import largest_micro_batch

    def runs(samples: int) -> bool:
        step.forget()
        with _memory_errors() as failed:
            step.use_micro_batch(samples)
            for _ in range(2):  # The peak is in the second, where the optimizer has its state.
                step()
        step.forget()
        return not failed

    return largest_micro_batch(
        runs,
        start=start,
        fails_at=fails_at,
        tried=lambda samples: tell(f"trying micro-batch {samples}"),
    )


def _does_not_fit(asked: int, largest: LargestMicroBatch) -> UserFileError:
    if not largest.samples:
        return UserFileError(
            f"Micro-batch {asked} ran out of memory, and so did a single sample.",
            fix="try --recompute full or --precision bf16, or see `gpuplan fits` for a device"
            " that holds the model.",
        )
    return UserFileError(
        f"Micro-batch {asked} ran out of memory; the largest that runs here is {largest.samples}.",
        fix=f"measure with --micro-batch {largest.samples} or less, or with --recompute full.",
    )


def _timed(step: Any, device: Any, steps: int, tell: Tell) -> tuple[list[float], Any]:
    from .interference import Watch, nvidia_reader

    reader = nvidia_reader(_uuid()) if device.kind == "cuda" else None
    with Watch(reader) as watch:
        tell("measuring", 0, steps)
        times_s = device.times_s(step, steps, lambda done: tell("measuring", done, steps))
        # A few fast steps may end before the driver has answered once.
        limit_s = time.monotonic() + LONGEST_WAIT_FOR_SAMPLE_S
        while not watch.saw_something() and time.monotonic() < limit_s:
            step()
            device.synchronize()
    return times_s, watch.conditions()


def _uuid() -> str:
    import torch

    found = str(getattr(torch.cuda.get_device_properties(0), "uuid", "0"))
    return found if found.startswith("GPU-") or found == "0" else f"GPU-{found}"


def _input(workload: Any, micro_batch: int, step_s: float, tell: Tell, notes: list[str]) -> Any:
    if workload.build_dataset is None:
        return None
    from .device import usable_cores
    from .input import input_pipeline

    try:
        return input_pipeline(
            workload.build_dataset(),
            batch_size=micro_batch,
            step_s=step_s,
            cores=usable_cores(),
            ran=lambda workers: tell(f"reading samples with {workers} workers"),
        )
    except Exception as error:
        # The step is still measured: its data may simply not be on this machine.
        reason = " ".join(str(error).split())[:300]
        notes.append(f"the input was not measured: {type(error).__name__}: {reason}")
        return None


def _versions(kind: str) -> dict[str, str]:
    import torch

    found = {
        "gpuplan": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if kind == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def _teller(stream: IO[bytes]) -> Tell:
    """Return the function that writes progress, no more often than somebody could read it."""
    last: list[Any] = ["", 0.0]

    def tell(stage: str, done: int | None = None, total: int | None = None) -> None:
        now_s = time.monotonic()
        if stage == last[0] and now_s - last[1] < REPORT_EVERY_S:
            return
        last[:] = [stage, now_s]
        line = json.dumps({"stage": stage, "done": done, "total": total})
        stream.write(PROGRESS + line.encode() + b"\n")
        stream.flush()

    return tell


if __name__ == "__main__":
    main()
