"""Where the time of profiled steps went, in the parts that a plan predicts.

On a CUDA device the time of a kernel stands with the operation that launched it; on a processor it
is that of the operation itself. The outermost operation that multiplies decides: a copy inside a
matrix product is part of that product, and all that an optimizer does is the optimizer's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

COMPUTE, MEMORY_BOUND, OPTIMIZER, COMMUNICATION = (
    "compute",
    "memory_bound",
    "optimizer",
    "communication",
)
"""As the parts of a plan's step are called; communication of all kinds is one."""
OPTIMIZER_STEP = "Optimizer.step#"
MULTIPLIES = re.compile(
    r"(^|_)(mm|bmm|addmm|baddbmm|addmv|mv|dot|gemm)($|_)"
    r"|conv|attention|rnn|lstm|gru"
)
COLLECTIVES = ("c10d", "_c10d_functional", "nccl", "gloo")
COLLECTIVE_EVENTS = ("nccl", "record_param_comms", "gloo:")
MOST_KERNELS = 100
Span = tuple[float, float]


def step_times(events: Iterable[Any], *, steps: int, seconds: float, device: str) -> dict[str, Any]:
    """Return the seconds of one step by part, and its longest operations.

    Args:
        events: of torch's profiler.
        steps: that were watched.
        seconds: from the begin of the first to the end of the last.
        device: "cuda" or "cpu".

    Returns:
        `device`; `step_s`; `parts_s`: compute, memory_bound, optimizer, and on a CUDA device
        `communication` (all of it), `communication_exposed` (while nothing else runs there) and
        `idle` (nothing runs there), null on a processor; `operations`: name, part, calls and
        seconds of each.
    """
    found = list(events)
    parts: dict[str, float] = dict.fromkeys((COMPUTE, MEMORY_BOUND, OPTIMIZER), 0.0)
    operations: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in found:
        part = part_of(event)
        own_s = _own_s(event, device)
        if part is None or own_s <= 0:
            continue
        parts[part] = parts.get(part, 0.0) + own_s
        entry = operations[event.name, part]
        entry[0] += 1
        entry[1] += own_s
    ordered = sorted(operations.items(), key=lambda one: -one[1][1])[:MOST_KERNELS]
    return {
        "device": device,
        "step_s": seconds / steps,
        "parts_s": {
            **{part: parts[part] / steps for part in (COMPUTE, MEMORY_BOUND, OPTIMIZER)},
            **_on_the_device(found, steps=steps, seconds=seconds, device=device),
        },
        "operations": [
            {"name": name, "part": part, "calls": calls / steps, "seconds": own_s / steps}
            for (name, part), (calls, own_s) in ordered
        ],
    }


def part_of(event: Any) -> str | None:
    """Return the part that an event's own time belongs to; None if it is no operation."""
    if not _is_on_host(event) or event.is_user_annotation:
        return None  # Its time stands with the operation that launched it, or with those inside.
    found = part_of_operation(event.name)
    above = event
    while above is not None:
        if above.name.startswith(OPTIMIZER_STEP):
            return OPTIMIZER
        outer = part_of_operation(above.name)
        if outer in (COMPUTE, COMMUNICATION):
            found = outer
        above = above.cpu_parent
    return found


def part_of_operation(name: str) -> str | None:
    """Return the part of an operation as the profiler names it; None if it is none.

    >>> part_of_operation("aten::addmm"), part_of_operation("aten::mul_")
    ('compute', 'memory_bound')
    >>> part_of_operation("nccl:all_reduce"), part_of_operation("MulBackward0")
    ('communication', None)
    """
    if name.startswith(COLLECTIVE_EVENTS):
        return COMMUNICATION
    if name.startswith("triton_"):
        return COMPUTE if name.startswith("triton_tem") else MEMORY_BOUND
    space, is_operation, operation = name.partition("::")
    if not is_operation or space in ("autograd", "cuda"):
        return None
    if space in COLLECTIVES:
        return COMMUNICATION
    return COMPUTE if MULTIPLIES.search(operation.rstrip("_")) else MEMORY_BOUND


def _on_the_device(
    events: Sequence[Any], *, steps: int, seconds: float, device: str
) -> dict[str, float | None]:
    """Return what only the times on a device tell, in seconds of one step."""
    names = (COMMUNICATION, f"{COMMUNICATION}_exposed", "idle")
    if device != "cuda":
        return dict.fromkeys(names)
    kernels = [one for one in events if not _is_on_host(one) and not one.is_user_annotation]
    collectives = _union([_span(one) for one in kernels if "nccl" in one.name.casefold()])
    others = _union([_span(one) for one in kernels if "nccl" not in one.name.casefold()])
    busy_s = _length(_union([*collectives, *others]))
    exposed_s = busy_s - _length(others)
    found = (_length(collectives), exposed_s, max(0.0, seconds - busy_s))
    return {name: one / steps for name, one in zip(names, found, strict=True)}


def _span(event: Any) -> Span:
    return event.time_range.start / 1e6, event.time_range.end / 1e6


def _union(spans: Sequence[Span]) -> list[Span]:
    """Return the spans, those that overlap as one.

    >>> _union([(3, 4), (0, 2), (1, 2.5)])
    [(0, 2.5), (3, 4)]
    """
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _length(spans: Sequence[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def _is_on_host(event: Any) -> bool:
    return str(event.device_type).endswith("CPU")


def _own_s(event: Any, device: str) -> float:
    microseconds = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
    return microseconds / 1e6
