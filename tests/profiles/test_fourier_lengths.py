"""How cuFFT transforms a length, by what profilers showed of it."""

import pytest

from gpuplan.profiles.fourier_lengths import Passes, passes_of

SINGLE, DOUBLE = 8, 16


@pytest.mark.parametrize("length", [1, 2, 64, 96, 384, 1000, 4096, 8192])
def test_a_length_of_small_factors_is_one_kernel(length: int) -> None:
    assert passes_of(length, complex_bytes=SINGLE) == Passes(regular=1, launches=1)
    assert passes_of(length, complex_bytes=SINGLE, real=True) == Passes(regular=1, launches=1)


def test_what_one_multiprocessor_cannot_hold_is_split() -> None:
    assert passes_of(16384, complex_bytes=SINGLE) == Passes(regular=2, launches=2)
    assert passes_of(8192, complex_bytes=DOUBLE) == Passes(regular=2, launches=2)
    # Half as many complex numbers.
    assert passes_of(16384, complex_bytes=SINGLE, real=True).launches == 1


@pytest.mark.parametrize(("length", "factors"), [(544320, 4), (98304, 3)])
def test_a_long_real_transform_has_a_kernel_for_each_factor_and_one_more(
    length: int, factors: int
) -> None:
    """As Nsight Compute shows: 243, 32, 5, 7 and a `postprocess_kernel`; 128, 128, 3 and one."""
    found = passes_of(length, complex_bytes=SINGLE, real=True)
    assert found == Passes(regular=factors + 1, launches=factors + 1)


def test_primes_up_to_127_have_a_pass_of_their_own() -> None:
    found = passes_of(3838, complex_bytes=SINGLE)
    assert found == Passes(regular=1, prime=2, launches=3)
    assert passes_of(127, complex_bytes=SINGLE) == Passes(prime=1, launches=1)
    assert passes_of(2 * 23, complex_bytes=SINGLE, real=True) == Passes(prime=1, launches=1)


def test_larger_primes_are_a_convolution_of_twice_the_length() -> None:
    assert passes_of(131, complex_bytes=SINGLE) == Passes(bluestein=1, launches=1)
    found = passes_of(10007, complex_bytes=SINGLE)
    # 32,768 in two passes, there and back, and products before and after.
    assert found == Passes(regular=2 + 4 * 32768 / 10007, launches=6)
    assert passes_of(4099, complex_bytes=SINGLE).total > passes_of(4096, complex_bytes=SINGLE).total
