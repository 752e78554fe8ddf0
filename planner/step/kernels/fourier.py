"""How much longer passes of a Fourier transform take than moving their bytes does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....profiles.fourier_lengths import Passes, passes_of
from ....profiles.profile import Kernel

PRIME_PASS, BLUESTEIN_PASS = 2.4, 4.1
"""Times that of a pass of factors 2, 3, 5 and 7 over the same numbers.

On an A100 with CUDA 12.8 they took 176, 308 and 75 us on average, primes 19, 53 and 101 among them
(KingAlejandro/MotionCorr-standalone, profile of 2026-10-01). So 381 x 387 numbers (primes 127 and
43) take 3.9 times as long as 384 x 384, where 3.8 was measured (1.118 for 0.296 ms, RTX 5060 Ti,
CUDA 13, Yiozolm/ConverseNet, Nsight report of 2026-09-11)."""


def slowdowns(kernels: Sequence[Kernel]) -> np.ndarray:
    """Return [K, 1]: the time of each transform, relative to that of the bytes it moves.

    Transforms of Profiles that hold no lengths take as long as their bytes do.
    """
    return np.array([[_slowdown(kernel)] for kernel in kernels])


def _slowdown(kernel: Kernel) -> float:
    passes = _passes(kernel)
    extra = sum(
        (PRIME_PASS - 1) * one.prime + (BLUESTEIN_PASS - 1) * one.bluestein for one in passes
    )
    total = sum(one.total for one in passes)
    return 1 + extra / total if total else 1.0


def _passes(kernel: Kernel) -> list[Passes]:
    lengths = [int(size.base) for name, size in kernel.dims.items() if name.startswith("length_")]
    return [
        passes_of(
            length,
            complex_bytes=16 if kernel.dtype == "fp64" else 8,
            real=kernel.op != "_fft_c2c" and at == len(lengths) - 1,
        )
        for at, length in enumerate(lengths)
        if length > 0
    ]
