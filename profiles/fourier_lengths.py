"""How cuFFT transforms a length: in one kernel, a kernel for each factor, or as a convolution.

A length of factors 2, 3, 5 and 7 is one kernel (`regular_fft`) while it fits into the shared memory
of a multiprocessor. Else each prime is a pass over memory of its own, with as many of its powers as
fit (`regular_fft_factor`): Nsight Compute shows 272,160 as 243, 32, 5 and 7, and 49,152 as 128, 128
and 3, each of real numbers with a kernel more before or after it (`preprocess_kernel`,
`postprocess_kernel`). Primes up to 127 have a kernel (`prime_fft_factor`), and are a pass in short
lengths too: 3838 = 2 x 19 x 101 is three (KingAlejandro/MotionCorr-standalone, profile of
2026-10-01, A100, CUDA 12.8). Of a larger one a length is Bluestein's convolution of at least 2n - 1
(cuFFT documentation, accuracy and performance: "primes from 2 to 127"). An even length of real
numbers is one of half as many complex ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log

SMOOTH_PRIMES = (2, 3, 5, 7)
LARGEST_PRIME = 127
"""With a kernel of its own; both from cuFFT's documentation."""
ONE_KERNEL_BYTES = 64 * 2**10
"""Of complex numbers that one kernel transforms: each multiprocessor since Volta has that much
shared memory (CUDA C++ Programming Guide, compute capabilities); cuFFT does not say what it
uses."""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """How often a transform of one length moves its numbers through memory."""

    regular: float = 0
    """By kernels of factors 2, 3, 5 and 7, and those before and after real numbers."""
    prime: int = 0
    """By the kernel of a prime above 7."""
    bluestein: int = 0
    """By the kernel that does all of Bluestein's convolution."""
    launches: int

    @property
    def total(self) -> float:
        """All of them; not whole where what is moved is longer than the transform."""
        return self.regular + self.prime + self.bluestein


def passes_of(length: int, *, complex_bytes: int, real: bool = False) -> Passes:
    """Return how cuFFT transforms a length.

    Args:
        length: numbers that are transformed together.
        complex_bytes: of one complex number of that precision.
        real: whether the numbers are real ones on one of both sides.
    """
    together = length // 2 if real and length % 2 == 0 else length
    found = _of_complex(together, ONE_KERNEL_BYTES // complex_bytes)
    if real and found.launches > 1:
        return replace(found, regular=found.regular + 1, launches=found.launches + 1)
    return found


def _of_complex(length: int, one_kernel: int) -> Passes:
    powers = _powers(length)
    if max(powers, default=1) > LARGEST_PRIME:
        return _bluestein(length, one_kernel)
    primes = sum(power for prime, power in powers.items() if prime not in SMOOTH_PRIMES)
    if not primes and length <= one_kernel:
        return Passes(regular=1, launches=1)
    smooth = {prime: power for prime, power in powers.items() if prime in SMOOTH_PRIMES}
    regular = sum(ceil(power * log(prime, one_kernel)) for prime, power in smooth.items())
    return Passes(regular=regular, prime=primes, launches=regular + primes)


def _bluestein(length: int, one_kernel: int) -> Passes:
    """Two transforms of a padded length, with products before, between and after them."""
    padded = 1 << (2 * length - 2).bit_length()
    if padded <= one_kernel:
        return Passes(bluestein=1, launches=1)
    each = _of_complex(padded, one_kernel).launches
    return Passes(regular=2 + 2 * each * padded / length, launches=2 + 2 * each)


def _powers(length: int) -> dict[int, int]:
    """Return prime → power.

    >>> _powers(3710)
    {2: 1, 5: 1, 7: 1, 53: 1}
    """
    powers: dict[int, int] = {}
    prime = 2
    while length > 1:
        if prime * prime > length:
            prime = length
        while length % prime == 0:
            powers[prime] = powers.get(prime, 0) + 1
            length //= prime
        prime += 1
    return powers
