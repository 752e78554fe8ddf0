"""How much of a step convolves with filters that nobody measured kernels of."""

import pytest

from gpuplan.planner.step.filter_shapes import other_filter_share
from gpuplan.profiles.profile import Affine, Kernel


def convolution(filter_elements: int, flops: float) -> Kernel:
    sizes = {"kernel_elements": filter_elements, "groups": 1, "in_channels": 8}
    return Kernel(
        op="aten.convolution.contiguous",
        kind="convolution",
        dtype="16bit",
        flops=Affine(0, flops),
        bytes_read=Affine(0, 1),
        bytes_written=Affine(0, 1),
        dims={name: Affine(size) for name, size in sizes.items()},
    )


@pytest.mark.parametrize(
    ("filters", "share"),
    [((1, 9, 49), 0.0), ((3,), 1.0), ((27, 1), 0.5), ((8, 9, 125, 7), 0.75), ((4, 64), 0.0)],
)
def test_filters_of_sequences_and_volumes_count(filters, share):
    assert other_filter_share([convolution(one, 2.0) for one in filters]) == share


def test_a_step_without_arithmetic_has_none():
    assert other_filter_share([]) == 0.0
