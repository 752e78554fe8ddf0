"""Whether a step compares the samples of its batch with each other, as its shapes at two sizes say.

A matrix of distances has rows and columns that grow with the batch, and what is left of it without
its diagonal or one half grows with its square in one dimension. No layer makes such a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from .assemble import PairedRuns
from .kernels.count import kind_of
from .kernels.operations import Call, op_name, tensors_in
from .recorded import RecordedStep

SQUARE_FROM_SAMPLES = 1.0
"""Samples at which the line of a size crosses 0 from which it may be that of a square: B² through 2
and 3 samples crosses at 1.2. So do larger halves of 2 and of 3, of which there may be pairs."""
MOST_COMPARED = 3
"""Samples at once, by losses of triplets."""

TIMES = (1, 2, 4, 8, 16)
"""A square is told by the first four of these times a size, a cube by all of them."""
FIRST_SAMPLES = 32
"""Sizes of batches in which samples are compared: small ones take other ways (torch's `cdist`
multiplies matrices from 26 samples), and kernels pad what they store to multiples of 32."""
FIRST_SAMPLES_OF_SHARES = 160
"""The same where sizes are stated as shares: of it, 30 % and 2.5 % are whole."""
LARGEST_BATCH_BYTES = 10**9
"""Files may make their batches in the host's memory; where they are larger than this, or larger
ones do other things, the sizes that were traced already are taken times 2, 4 and 8."""


def with_larger(
    runs: PairedRuns, step: Callable[..., RecordedStep], first: int = FIRST_SAMPLES
) -> PairedRuns:
    """Return the runs at as many sizes as tell how what pairs of samples need grows.

    Where those do other things, the two are returned alone: a line, right near their sizes.

    Args:
        runs: at two sizes.
        step: records the same at another, with or without its optimizer: `step(4, optimize=True)`.
        first: the least of the sizes to try first.
    """
    compared = compared_samples(runs)
    if compared == 1:
        return runs
    times = TIMES[: compared + 2]
    for least in (first, runs.small.size):
        if runs.small.batch_bytes / runs.small.size * least * times[-1] > LARGEST_BATCH_BYTES:
            continue
        with suppress(Exception):
            small = step(least, optimize=True)
            large, *larger = (
                step(least * each, optimize=runs.optimizers_grow) for each in times[1:]
            )
            found = replace(runs, small=small, large=large, larger=tuple(larger))
            if not found.difference():
                return found
        for parameter in runs.built.model.parameters():
            parameter.grad = None
    return runs


def compared_samples(runs: PairedRuns) -> int:
    """Return how many samples the largest tensor combines: 1, 2 for pairs, 3 for triples."""
    most = 1
    seen: set[tuple[int, int]] = set()  # Most equal calls are one object, and slow to compare.
    sizes = runs.small.size, runs.large.size
    instances = zip(runs.small.recorder.instances, runs.large.recorder.instances, strict=False)
    for small, large in instances:
        for (one, _, _), (other, _, _) in zip(small.calls, large.calls, strict=False):
            if (id(one), id(other)) not in seen:
                seen.add((id(one), id(other)))
                most = max(most, _compared_in(one, other, sizes))
    return min(most, MOST_COMPARED)


def _compared_in(small: Call, large: Call, sizes: tuple[int, int]) -> int:
    one = (*small.outs, *tensors_in(small.args))
    other = (*large.outs, *tensors_in(large.args))
    degrees = [_degree(a.shape, b.shape, sizes) for a, b in zip(one, other, strict=False)]
    if kind_of(op_name(small.func)) == "attention":
        # Fused attention from samples to samples stores no matrix of them.
        lengths = [
            (a.shape[-2], b.shape[-2]) for a, b in zip(one, other, strict=False) if a.shape[2:]
        ]
        degrees.append(2 * any(_degree_of_dimension(*length, sizes) for length in lengths))
    return max(degrees, default=0)


def _degree(small: Iterable[int], large: Iterable[int], sizes: tuple[int, int]) -> int:
    return sum(_degree_of_dimension(a, b, sizes) for a, b in zip(small, large, strict=False))


def _degree_of_dimension(small: int, large: int, sizes: tuple[int, int]) -> int:
    if large <= small:
        return 0
    crosses_at = sizes[0] - small * (sizes[1] - sizes[0]) / (large - small)
    return 2 if crosses_at >= SQUARE_FROM_SAMPLES else 1
