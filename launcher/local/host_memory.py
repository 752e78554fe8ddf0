"""Whether a run fits in the memory of this machine, asked before its processes start.

Only what every run surely holds is counted: activations, torch itself and what a cluster of
processes shares come on top, so a run that is let through may still be too large.
"""

from __future__ import annotations

from collections.abc import Callable

from ...catalog.errors import UsageError
from ...catalog.text.quantity import format_bytes
from ...planner.plan.layout import Layout
from ...profiles.tracing_process.model_size import ModelSize, count_model_size, remembered_bytes
from ..runner.job import Execution, Job, execution_of
from .machine import free_memory_bytes

MOST_BYTES_PER_PARAMETER = 4 * 4
"""fp32 weights, gradients and Adam's two moments: a model that fits so is not counted."""
ROOM = 4
"""So many times the size that was counted last must fit, for a file that may have changed since."""
REACHED = ", which may go well where the loss does not reach all parameters: each is counted here"
Count = Callable[..., ModelSize | None]


def refuse_too_large(
    job: Job,
    nproc: int,
    device: str,
    *,
    anyway: Callable[[str], None] | None = None,
    free_bytes: Callable[[], int | None] = free_memory_bytes,
    count: Count = count_model_size,
) -> None:
    """Refuse a run of which this machine surely cannot hold the model.

    Every trained parameter is counted with a gradient, though one that the loss never reaches gets
    none: such a model may fit after all, so the user has the last word.

    Args:
        job: the run.
        nproc: its processes.
        device: cpu or cuda.
        anyway: told what would be refused, where it is to be started all the same; None refuses.
        free_bytes: returns what can be had here; None where it is not known.
        count: returns the size of a model; None where it is not known.

    Raises:
        UsageError: what is needed at the least is more than there is.
    """
    free = free_bytes()
    if free is None or _is_small(job, nproc, free):
        return
    execution = None if job.plan is None else execution_of(job.plan)
    size = count(
        job.spec,
        precision=None if execution is None else execution.precision,
        frozen_precision=None if execution is None else execution.frozen_precision,
    )
    if size is None:
        return
    layout = Layout(data=nproc) if execution is None else execution.layout
    if least_bytes(size, layout, device) <= free:
        return
    what = (
        f"{job.spec.name} is too large for the memory of this machine:"
        f" {_needed(size, layout, device)} {format_bytes(free)} is free here, swap included."
    )
    if anyway is None:
        raise UsageError(what, fix=_fix(job, size, layout, execution, device, free))
    anyway(f"{what} It is started all the same, as -y says.")


def least_bytes(size: ModelSize, layout: Layout, device: str) -> int:
    """Return what the processes together surely hold in host memory at once.

    On the processor that is the training state, each copy whole or in shards. In both cases at
    least one process holds the whole model as it is built.
    """
    if device != "cpu":
        return size.built_bytes
    return max(size.built_bytes, layout.replicas * size.trained_bytes)


def _is_small(job: Job, nproc: int, free: int) -> bool:
    """Return whether it fits by what is known without a count, which takes seconds."""
    known = job.parameters
    if known is not None:
        return known * MOST_BYTES_PER_PARAMETER * nproc <= free
    last = remembered_bytes(job.spec)
    return last is not None and last * ROOM * nproc <= free


def _needed(size: ModelSize, layout: Layout, device: str) -> str:
    """Return how the bytes that are needed come about."""
    least = format_bytes(least_bytes(size, layout, device))
    copies = layout.replicas
    if device != "cpu" or copies * size.trained_bytes < size.built_bytes:
        return f"building it takes {least}, before its weights go anywhere else."
    parts = {
        "weights": size.weight_bytes,
        "gradients": size.gradient_bytes,
        "optimizer": size.optimizer_bytes,
    }
    said = ", ".join(f"{name} {format_bytes(one)}" for name, one in parts.items() if one)
    if copies == 1:
        return f"training it takes at least {least} ({said})."
    whole = "processes hold all of it" if copies == layout.accelerators else "copies of it are held"
    return f"{copies} {whole}, together at least {least} (each {said})."


def _fix(
    job: Job,
    size: ModelSize,
    layout: Layout,
    execution: Execution | None,
    device: str,
    free: int,
) -> str:
    """Return what makes it fit, each way only where it does."""
    ways: list[str] = []
    copies = layout.replicas
    alone = max(size.built_bytes, size.trained_bytes) <= free
    if device == "cpu" and copies > 1 and alone:
        fitting = free // size.trained_bytes
        ways.append(
            f"give --nproc {fitting}"
            if execution is None
            else f"choose a plan with at most {fitting} copies of the model"
        )
        ways.append(
            f"share one copy among the processes (`gpuplan estimate {job.spec.text} --layout"
            f" fsdp{layout.accelerators}`, then --plan)"
        )
    ways += [
        "build a smaller model with --param",
        "end other programs that hold memory",
        f"rent a machine that holds it (`gpuplan estimate {job.spec.text}`, then `gpuplan launch`)",
        "start it all the same with -y" + (REACHED if _counts_gradients(size, device) else ""),
    ]
    return "; or ".join(ways) + "."


def _counts_gradients(size: ModelSize, device: str) -> bool:
    return device == "cpu" and size.gradient_bytes > 0
