"""Out of memory, as one message: what was predicted, what was seen, what to try."""

from __future__ import annotations

from typing import Any

from .....catalog.errors import GpuplanError
from .....catalog.units import GIB
from ...job import Job


class OutOfMemoryError(GpuplanError):
    """The device had no memory left."""


def out_of_memory(job: Job, error: BaseException) -> OutOfMemoryError | None:
    """Return the error for the user, if a device or the host ran out of memory."""
    from .....profiles.user_model.training_step import is_out_of_memory

    if not is_out_of_memory(error):
        return None
    predicted = ((job.plan or {}).get("peak_memory_bytes") or {}).get("value")
    said = "no peak was predicted" if predicted is None else f"predicted {_gib(predicted)}"
    micro_batch = job.execution.micro_batch if job.execution else job.micro_batch
    return OutOfMemoryError(
        f"The device ran out of memory at micro-batch {micro_batch or 1}: {said}, {_seen()}.",
        fix=_what_to_try(job),
    )


def _seen() -> str:
    import torch

    if not torch.cuda.is_available():
        return "the host had no more"
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return (
        f"seen {_gib(allocated)} allocated and {_gib(reserved)} reserved"
        f" of {_gib(total)} when it failed"
    )


def _what_to_try(job: Job) -> str:
    execution = job.execution
    tries: list[str] = []
    if execution is None or execution.micro_batch > 1:
        tries.append("a smaller micro-batch with more gradient-accumulation steps")
    if execution is not None and execution.recompute != "full":
        tries.append("--recompute full")
    if execution is not None and execution.layout.zero_stage < 3 and execution.layout.data > 1:
        tries.append(f"--layout fsdp{execution.layout.data}")
    tries.append("a larger device (`gpuplan fits` names those that hold the model)")
    return "try " + ", ".join(tries) + "; the newest checkpoint is kept."


def _gib(value: Any) -> str:
    return f"{float(value) / GIB:.1f} GiB"
