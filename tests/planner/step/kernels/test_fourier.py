"""Transforms take longer where a length has a large prime factor than their bytes say."""

import pytest

from gpuplan.planner.step.kernels.fourier import slowdowns
from gpuplan.profiles.fourier_lengths import passes_of
from gpuplan.profiles.profile import Affine, Kernel


def transform(*lengths: int, op: str = "_fft_r2c") -> Kernel:
    return Kernel(
        kind="fft",
        op=op,
        dims={
            "elements": Affine(0, 1),
            **{f"length_{at}": Affine(length) for at, length in enumerate(lengths)},
        },
        dtype="fp32",
        flops=Affine(0),
        bytes_read=Affine(0, 8),
        bytes_written=Affine(0, 8),
    )


def work(*lengths: int) -> float:
    """Return the time of a transform, in passes over its numbers."""
    passes = [
        passes_of(length, complex_bytes=8, real=at == len(lengths) - 1)
        for at, length in enumerate(lengths)
    ]
    return slowdowns([transform(*lengths)]).item() * sum(one.total for one in passes)


def test_small_factors_take_as_long_as_their_bytes() -> None:
    assert slowdowns([transform(384, 384), transform(1000, op="_fft_c2c")]).tolist() == [[1], [1]]


def test_an_older_profile_without_lengths_takes_as_long_as_its_bytes() -> None:
    assert slowdowns([transform()]).item() == 1


def test_large_primes_take_what_was_measured() -> None:
    """1.118 ms for 0.296 on an RTX 5060 Ti (Yiozolm/ConverseNet, Nsight, 2026-09-11)."""
    assert work(381, 387) / work(384, 384) == pytest.approx(1.118 / 0.296, rel=0.05)


def test_a_prime_above_127_takes_four_times_as_long() -> None:
    assert work(131) == pytest.approx(4.1)
