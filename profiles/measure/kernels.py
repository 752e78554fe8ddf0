"""Time of one real step by kernel kind, through torch's profiler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from ..measured import KernelTime
from ..profile import KernelKind
from ..trace.kernels.count import kind_of

PROFILED_STEPS = 2
_OPTIMIZER = "Optimizer.step#"
_PARTS_OF_NAMES: tuple[tuple[str, KernelKind], ...] = (
    # What a device's libraries call the operations that a trace knows by one name.
    ("attention", "attention"),
    ("conv", "convolution"),
    ("fft", "fft"),
    ("rnn", "rnn"),
    ("lstm", "rnn"),
    ("gru", "rnn"),
    ("batch_norm", "norm"),
    ("layer_norm", "norm"),
    ("group_norm", "norm"),
    ("gemm", "gemm"),
)


def kernel_times(step: Callable[[], None], device: str) -> tuple[KernelTime, ...]:
    """Return the time of each kernel kind in one step, the longest first.

    On a CUDA device it is that of the kernels themselves; on the host that of the operations,
    which the profiler makes a little slower.
    """
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        for _ in range(PROFILED_STEPS):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
    seconds: dict[KernelKind, float] = defaultdict(float)
    for event in profiler.events() or ():
        kind = event_kind(event)
        own_s = _own_s(event, device)
        if kind is not None and own_s > 0:
            seconds[kind] += own_s
    ordered = sorted(seconds, key=lambda kind: -seconds[kind])
    return tuple(KernelTime(kind=kind, seconds=seconds[kind] / PROFILED_STEPS) for kind in ordered)


def event_kind(event: Any) -> KernelKind | None:
    """Return the kind that an event's time belongs to; None if it is no operation.

    The outermost operation with a kind of its own decides: a copy inside a matrix product is part
    of that product, and all that an optimizer does is the optimizer's.
    """
    if not str(event.device_type).endswith("CPU"):
        return None  # The kernel itself; its time stands with the operation that launched it.
    own = kind_of_operation(event.name)
    outermost = own
    above = event
    while above is not None:
        if above.name.startswith(_OPTIMIZER):
            return "optimizer"
        kind = kind_of_operation(above.name)
        if kind not in (None, "pointwise"):
            outermost = kind
        above = above.cpu_parent
    return outermost


def kind_of_operation(name: str) -> KernelKind | None:
    """Return the kind of an operation as the profiler names it; None if it is none.

    >>> kind_of_operation("aten::addmm"), kind_of_operation("aten::mul_")
    ('gemm', 'pointwise')
    >>> kind_of_operation("aten::_flash_attention_forward"), kind_of_operation("MulBackward0")
    ('attention', None)
    """
    if name.startswith("triton_"):
        return "reduction" if name.startswith(("triton_red", "triton_per")) else "pointwise"
    space, found, operation = name.partition("::")
    if not found or space in ("autograd", "cuda"):
        return None
    operation = operation.rstrip("_") if not operation.endswith("__") else operation
    kind = kind_of(operation)
    if kind != "pointwise":
        return kind
    for part, named in _PARTS_OF_NAMES:
        if part in operation:
            return named
    return "pointwise"


def _own_s(event: Any, device: str) -> float:
    microseconds = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
    return microseconds / 1e6
