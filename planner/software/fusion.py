"""What a compiler makes of a segment: runs of memory-bound kernels become one kernel each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from ...profiles.profile import (
    CATEGORIES,
    COMPLEX,
    Affine,
    Kernel,
    KernelKind,
    MemoryStream,
    Segment,
    StepTrace,
)

T = TypeVar("T")

FUSIBLE: frozenset[KernelKind] = frozenset({"pointwise", "norm", "softmax", "reduction", "copy"})
"""Kinds that Inductor and XLA merge; GEMM, attention and convolution stay apart."""
REREAD = "reread_bytes"
"""Dimension of a kernel: bytes that it moves besides where reductions are kernels of their own."""
_READ_AGAIN = {
    "_softmax": 2,  # Once for the largest, once for the sum of exponentials, once for the quotient.
    "_log_softmax": 2,
    "_softmax_backward_data": 1,
    "native_layer_norm": 2,  # Mean, variance, result.
    "native_layer_norm_backward": 2,  # Along the rows, along the columns, result.
    "rms_norm": 1,
    "rms_norm_backward": 2,
}
"""How often XLA on GPUs reads again what a kernel written by hand reads once: it fuses what leads
to a reduction, never a reduction with what follows (`IsProducerConsumerFusible` in
gpu_fusible.cc), unless Triton merges both sides."""
Share = float | None
"""Of a kernel's results, what is used behind the run that it is merged into; None: it does not run,
since an earlier one makes the same."""
Outliving = Sequence[Sequence[Share]]
"""By segment and kernel of a step: see `outliving_shares`."""
Run = list[tuple[Kernel, float]]
"""Kernels that become one, each with the share of its results that outlives all of them."""
_CAST = "_to_copy"
_ACTIVATIONS = CATEGORIES.index("activations")


def fuse(segment: Segment, outliving: Sequence[Share] = ()) -> Segment:
    """Return the segment with every run of fusible kernels merged into one.

    A result that none but the run uses is neither written nor read back: the run moves the bytes of
    its parts less twice those results, and never less than it writes at its end plus the largest
    read. A result that is used later, or kept for the backward pass, is written all the same.

    Args:
        segment: kernels in launch order.
        outliving: of each kernel (`outliving_shares`); empty: only the last of a run has results
            that are used.
    """
    if segment.phase == "optimizer":
        return segment
    shares = outliving or [0.0] * len(segment.kernels)
    running = [
        (kernel, share)
        for kernel, share in zip(segment.kernels, shares, strict=True)
        if share is not None
    ]
    return segment.model_copy(update={"kernels": tuple(map(_merged, _runs(running)))})


def outliving_shares(trace: StepTrace) -> Outliving:
    """Return which share of each kernel's results is used behind its run, by segment and kernel.

    It is read from the storages of the step: those born at a kernel that die later than behind the
    run's last one. A kernel that makes none works in place: its result is that of another. Shares
    of a softmax are an operand of the product behind it, kept or computed again.

    Under autocast every layer that takes a result casts it; compilers cast it once (torch's
    `fx_graph_cse`, XLA's HloCSE).

    Args:
        trace: with what the fused kernels keep for the backward pass (`with_fused_kernels`).
    """
    born = _born(trace.memory)
    found: dict[int, tuple[Share, ...]] = {}
    for at, number in enumerate(trace.schedule):
        segment = trace.segments[number]
        if number not in found and len(segment.offsets) == len(segment.kernels):
            start = trace.start_tick[at]
            found[number] = _shares(segment, [start + o for o in segment.offsets], born)
    return tuple(found.get(number, ()) for number in range(len(trace.segments)))


class _Storage(NamedTuple):
    """What a kernel made: when it dies, its bytes at one sample, and its category."""

    death_tick: int
    size_bytes: int
    category: int


_Born = dict[int, list[_Storage]]


def _born(memory: MemoryStream) -> _Born:
    """Return the storages born at each tick."""
    born: _Born = {}
    columns = memory.death_tick, memory.bytes_base, memory.bytes_per_sample, memory.category
    for birth, death, base, per_sample, category in zip(memory.birth_tick, *columns, strict=True):
        born.setdefault(birth, []).append(_Storage(death, base + per_sample, category))
    return born


def _shares(segment: Segment, ticks: Sequence[int], born: _Born) -> tuple[Share, ...]:
    runs = list(_runs(list(zip(segment.kernels, ticks, strict=True))))
    again = _casts_again([[kernel for kernel, _ in run] for run in runs])
    shares: list[Share] = []
    for number, run in enumerate(runs):
        if number in again:
            shares.append(None)
            continue
        followers = [*(kernel for kernel, _ in run[1:]), None]
        for (kernel, tick), follower in zip(run, followers, strict=True):
            behind = [one for one in born.get(tick, ()) if one.death_tick > run[-1][1] + 1]
            if follower is not None and _is_cast(kernel, follower):
                behind = [one for one in behind if one.category == _ACTIVATIONS]
            written = kernel.bytes_written.at(1)
            used = written if kernel.op == "_softmax" else sum(one.size_bytes for one in behind)
            shares.append(min(1.0, used / written) if written else 0.0)
    return tuple(shares)


def _is_cast(kernel: Kernel, follower: Kernel) -> bool:
    """Return whether a result is cast at once.

    What needs it then takes the cast, however long a variable of the model still names it; what the
    backward pass keeps is an activation.
    """
    return follower.op == _CAST and follower.bytes_read == kernel.bytes_written


def _casts_again(runs: Sequence[Sequence[Kernel]]) -> set[int]:
    """Return the runs that cast once more what the end of an earlier one has cast.

    Such a cast stands alone, of activations and as large as the first.
    """
    again: set[int] = set()
    first: set[tuple[Affine, Affine]] = set()
    for number, run in enumerate(runs):
        last = run[-1]
        if last.op != _CAST or last.bytes_read.base:
            continue
        sizes = (last.bytes_read, last.bytes_written)
        if len(run) == 1 and sizes in first:
            again.add(number)
        first.add(sizes)
    return again


def _runs(kernels: Sequence[tuple[Kernel, T]]) -> Iterator[list[tuple[Kernel, T]]]:
    """Yield the kernels, fusible ones that follow one another together, each with what it has."""
    run: list[tuple[Kernel, T]] = []
    for kernel, beside in kernels:
        if run and not (_is_fusible(kernel) and _is_fusible(run[-1][0])):
            yield run
            run = []
        run.append((kernel, beside))
    if run:
        yield run


def _is_fusible(kernel: Kernel) -> bool:
    """Return whether a compiler merges a kernel with those beside it.

    Inductor writes none for complex numbers, and runs torch's own ("Torchinductor does not support
    code generation for complex operators", torch/_inductor/lowering.py).
    """
    return kernel.kind in FUSIBLE and not kernel.op.endswith(COMPLEX)


def _merged(run: Run) -> Kernel:
    """Return the kernel that a run becomes, with what separate reductions would move besides."""
    kernels = [kernel for kernel, _ in run]
    merged = kernels[0] if len(run) == 1 else _joined(run)
    again = [k.bytes_read.times(_READ_AGAIN[k.op]) for k in kernels if k.op in _READ_AGAIN]
    if not again:
        return merged
    return merged.model_copy(update={"dims": {**merged.dims, REREAD: Affine.total(again)}})


def _joined(run: Run) -> Kernel:
    kernels = [kernel for kernel, _ in run]
    read = Affine.total(k.bytes_read for k in kernels)
    inner = Affine.total(k.bytes_written for k in kernels[:-1])
    heaviest = max(kernels, key=lambda k: sum(k.bytes_read))
    # What the last one writes in place is a result of an earlier one, which outlives the run.
    used = Affine.total(kernel.bytes_written.times(share) for kernel, share in run)
    return heaviest.model_copy(
        update={
            "op": "+".join(dict.fromkeys(k.op for k in kernels)),
            "bytes_read": _larger(Affine.total((read, inner.times(-1))), heaviest.bytes_read),
            "bytes_written": _larger(used, kernels[-1].bytes_written),
            "launches": 1,
        }
    )


def _larger(one: Affine, other: Affine) -> Affine:
    return Affine(*map(max, one, other))
