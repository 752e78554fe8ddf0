"""The numbers of one kernel: at one micro-batch size, and how they grow with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import comb
from typing import Any

from ...profile import Affine, DtypeClass, Kernel, KernelKind

ROUNDED_BY = 0.05
"""How far a size may be from its law where parts of samples are rounded to whole ones."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """One kernel at one micro-batch size; the numbers of a `Kernel`."""

    kind: KernelKind
    op: str
    dims: dict[str, int] = field(default_factory=dict)
    dtype: DtypeClass
    flops: int = 0
    bytes_read: int
    bytes_written: int
    launches: int = 1
    causal: bool = False
    backward: bool = False


def affine(counts: Sequence[Counts], sizes: Sequence[int]) -> dict[str, Any]:
    """Return the numbers of a `Kernel` from its counts at these micro-batch sizes."""
    first = counts[0]

    def through(values: Iterable[int]) -> Affine:
        return law(tuple(values), sizes)

    return {
        "kind": first.kind,
        "op": first.op,
        "dtype": first.dtype,
        "causal": first.causal,
        "backward": first.backward,
        "launches": first.launches,
        "dims": {key: through(each.dims[key] for each in counts) for key in first.dims},
        "flops": through(each.flops for each in counts),
        "bytes_read": through(each.bytes_read for each in counts),
        "bytes_written": through(each.bytes_written for each in counts),
    }


def law(values: Sequence[int], sizes: Sequence[int]) -> Affine:
    """Return how a size grows, from what it is at two micro-batches or more.

    Of two it is their line. Of more, it is the least degree that all of them obey and one of them
    is left to confirm; where none does, as of a share that was rounded, the least that is near
    all of them through the largest; else the line through the first two.

    >>> law([1024, 4096, 16384, 65536], [32, 64, 128, 256])
    Affine(base=0, per_sample=1, per_pair=2, per_triple=0)
    >>> law([10, 20, 39, 77], [32, 64, 128, 256]).at(512)
    153.0
    """
    if len(values) > 2:
        for off_by in (0.0, ROUNDED_BY):
            for degree in range(1, min(len(values) - 1, 4)):
                found = _through(values[-degree - 1 :], sizes[-degree - 1 :])
                known = zip(sizes, values, strict=True)
                if all(abs(found.at(size) - value) <= off_by * value for size, value in known):
                    return found
    return line(values[0], values[1], (sizes[0], sizes[1]))


def _through(values: Sequence[int], sizes: Sequence[int]) -> Affine:
    """Return the law of the degree that so many values fix."""
    rows = [
        [Fraction(comb(size, chosen)) for chosen in range(len(sizes))] + [Fraction(value)]
        for size, value in zip(sizes, values, strict=True)
    ]
    for at, pivot in enumerate(rows):
        pivot[:] = [each / pivot[at] for each in pivot]
        for other in rows:
            if other is not pivot and (factor := other[at]):
                other[:] = [a - factor * b for a, b in zip(other, pivot, strict=True)]
    solved = [row[-1] for row in rows]
    return Affine(*(int(each) if each.denominator == 1 else float(each) for each in solved))


def line(small: int, large: int, sizes: tuple[int, int]) -> Affine:
    """Return the affine law through two readings; whole numbers wherever they are."""
    rise, run = large - small, sizes[1] - sizes[0]
    slope = rise // run if rise % run == 0 else rise / run
    return Affine(small - slope * sizes[0], slope)


def make_kernel(numbers: dict[str, Any], *, module: str, linear: bool, rerun: bool) -> Kernel:
    """Return the `Kernel` of these numbers, launched by this module.

    Args:
        numbers: of `affine`.
        module: path of the module.
        linear: whether it takes a weight.
        rerun: whether a checkpoint runs it again.
    """
    is_linear = linear and numbers["kind"] == "gemm"
    return Kernel(**numbers, module=module, linear=is_linear, rerun=rerun)
