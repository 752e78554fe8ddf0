"""Fourier transforms and complex numbers: what a step multiplies, moves and keeps of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gpuplan.profiles.profile import COMPLEX, Kernel, Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

SIDE, HALF, WIDTH = 32, 17, 6
REAL, HALF_COMPLEX = 4 * WIDTH * SIDE * SIDE, 8 * WIDTH * SIDE * HALF
"""Bytes of one sample, and of its transform."""


class Spectral(nn.Module):
    """Mixes the channels of each frequency, with a weight of complex numbers or of real ones."""

    def __init__(self, *, dtype: torch.dtype = torch.cfloat) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH, WIDTH, dtype=dtype))
        self.scale = nn.Parameter(torch.ones(WIDTH, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.fft.rfft2(x * self.scale)
        mixed = found.flatten(2).mT @ self.weight
        return torch.fft.irfft2(mixed.mT.reshape(found.shape), s=x.shape[-2:])


def profile_of(module: Callable[[], nn.Module], *shape: int) -> Profile:
    def make_batch(batch_size: int) -> tuple[Any, ...]:
        return (torch.ones(batch_size, *shape),)

    made = Workload(
        name="spectral",
        path=Path(__file__),
        build_model=module,
        make_batch=make_batch,
        compute_loss=lambda model, batch: model(*batch).square().mean(),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    return trace_workload(made, numerics=("fp32",))


def kernels(profile: Profile, kind: str) -> list[Kernel]:
    """Return the kernels of one kind, in the order of the step."""
    step = profile.step("fp32")
    every = (kernel for at in step.schedule for kernel in step.segments[at].kernels)
    return [kernel for kernel in every if kernel.kind == kind]


def test_each_dimension_of_a_transform_moves_all_of_it() -> None:
    forward, inverse, *_ = kernels(profile_of(Spectral, WIDTH, SIDE, SIDE), "fft")
    assert (forward.op, inverse.op) == ("_fft_r2c", "_fft_c2r")
    moved = forward.bytes_read.at(1), forward.bytes_written.at(1)
    assert moved == (REAL + HALF_COMPLEX, 2 * HALF_COMPLEX)
    assert forward.launches == 2
    # Besides, it divides the result by its size.
    moved = inverse.bytes_read.at(1), inverse.bytes_written.at(1)
    assert moved == (2 * HALF_COMPLEX + REAL, HALF_COMPLEX + 2 * REAL)
    assert inverse.launches == 3


def test_a_length_is_as_many_passes_as_its_factors_take() -> None:
    """All lengths were one pass. 254 = 2 x 127; 262 = 2 x 131 is a convolution."""
    moved = {}
    for length in (256, 254, 262):
        shape = WIDTH, SIDE, length
        forward, inverse, *_ = kernels(profile_of(Spectral, *shape), "fft")
        assert [forward.dims[f"length_{at}"].at(1) for at in (0, 1)] == [SIDE, length]
        assert [inverse.dims[f"length_{at}"].at(1) for at in (0, 1)] == [SIDE, length]
        moved[length] = forward.launches
    # Of real numbers 254 is 127 complex ones, a prime with a kernel.
    assert moved == {256: 2, 254: 2, 262: 2}
    forward, *_ = kernels(profile_of(Spectral, WIDTH, SIDE, 3 * 254), "fft")
    # 3, 127, and the kernel behind real numbers.
    half_complex = 8 * WIDTH * SIDE * (3 * 127 + 1)
    assert forward.launches == 4
    assert forward.bytes_written.at(1) == 4 * half_complex


def test_what_an_inverse_transform_overwrites_is_copied_first() -> None:
    step = profile_of(Spectral, WIDTH, SIDE, SIDE).step("fp32")
    (at,) = {
        (number, place)
        for number in step.schedule
        if step.segments[number].phase == "forward"
        for place, kernel in enumerate(step.segments[number].kernels)
        if kernel.op == "_fft_c2r"
    }
    copy = step.segments[at[0]].kernels[at[1] - 1]
    assert copy.op == f"clone{COMPLEX}"
    assert copy.bytes_written.at(1) == HALF_COMPLEX
    # The copy lives as long as the transform runs.
    start = step.start_tick[step.schedule.index(at[0])]
    tick = start + step.segments[at[0]].offsets[at[1] - 1]
    (death,) = [
        death
        for birth, death, size in zip(
            step.memory.birth_tick,
            step.memory.death_tick,
            step.memory.bytes_per_sample,
            strict=True,
        )
        if birth == tick and size == HALF_COMPLEX
    ]
    assert death == tick + 2


def test_a_complex_product_is_four_real_ones() -> None:
    frequencies = SIDE * HALF
    products = kernels(profile_of(Spectral, WIDTH, SIDE, SIDE), "gemm")
    assert {kernel.op for kernel in products} <= {f"mm{COMPLEX}", f"bmm{COMPLEX}"}
    assert [kernel.flops.at(1) for kernel in products] == [8 * frequencies * WIDTH**2] * 3


def test_real_operations_are_named_as_they_were() -> None:
    names = {k.op for k in kernels(profile_of(lambda: nn.Linear(8, 4), 8), "gemm")}
    assert not any(name.endswith(COMPLEX) for name in names)
