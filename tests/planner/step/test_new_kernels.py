"""How much of a step is in kernels that nobody measured."""

import pytest

from gpuplan.planner.step.new_kernels import new_kernel_share
from gpuplan.profiles.profile import Affine, Kernel, Segment, StepTrace


def kernel(kind: str, flops: float = 0.0, moved: float = 0.0, **dims: float) -> Kernel:
    return Kernel(
        op=kind,
        kind=kind,  # pyright: ignore[reportArgumentType]
        dtype="16bit",
        flops=Affine(0, flops),
        bytes_read=Affine(0, moved),
        bytes_written=Affine(0, 0),
        dims={name: Affine(size) for name, size in dims.items()},
    )


def convolution(
    elements: int, *, side: int | None = None, dilation: int = 1, groups: int = 1
) -> Kernel:
    sizes = {"in_channels": 8, "kernel_elements": elements, "dilation": dilation, "groups": groups}
    if side is not None:
        sizes["filter_side"] = side
    return kernel("convolution", 2.0, **sizes)


def share(*kernels: Kernel, times: int = 1) -> float:
    """Return it of a step that runs the first kernel so many times, and the others once."""
    first, *others = kernels or [kernel("gemm")]
    segments = [
        Segment(name=name, phase="forward", block=None, kernels=tuple(some))
        for name, some in (("block", [first]), ("root", others))
    ]
    return new_kernel_share(
        StepTrace.model_construct(segments=tuple(segments), schedule=[0] * times + [1])
    )


@pytest.mark.parametrize(
    ("filters", "is_new"),
    [
        (convolution(1, side=1), False),
        (convolution(9, side=3), False),
        (convolution(49), False),
        (convolution(9, side=9), True),
        (convolution(27, side=3), True),
        (convolution(7), True),
        (convolution(9, side=3, dilation=4), True),
        (convolution(1, side=1, dilation=4), False),
        (kernel("rnn", 2.0), True),
        (kernel("embedding", moved=1.0), True),
        (kernel("attention", 2.0), False),
        (kernel("fft", moved=1.0), True),
        (kernel("gemm", 2.0).model_copy(update={"op": "bmm.complex"}), True),
        (kernel("pointwise", moved=1.0).model_copy(update={"op": "mul.complex"}), False),
    ],
)
def test_those_of_images_and_transformers_were_measured(filters: Kernel, is_new: bool) -> None:
    assert share(filters) == float(is_new)


def test_it_is_a_share_of_the_time_and_blocks_run_more_than_once() -> None:
    known, new = kernel("gemm", 600.0), kernel("rnn", 600.0)
    assert share(known, new) == 0.5
    assert share(known, new, times=3) == 0.25
    # A byte takes as long as 60 operations.
    assert share(known, kernel("embedding", moved=10.0)) == 0.5


def test_a_depthwise_convolution_counts_by_its_time_and_not_its_operations() -> None:
    mixed = kernel("gemm", 280.0)
    assert share(mixed, convolution(31, side=31, groups=8)) == 0.5
    assert share(mixed, convolution(31, side=31)) < 0.01
    # Of one element it is of no side: 25 operations of a product for each of its own.
    assert share(convolution(1, side=1, groups=8), kernel("rnn", 50.0)) == 0.5


def test_a_step_without_arithmetic_has_none() -> None:
    assert share() == 0.0
