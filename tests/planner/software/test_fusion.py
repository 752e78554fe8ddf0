"""What a compiler makes of runs of memory-bound kernels."""

import pytest

from gpuplan.planner.software.fusion import REREAD, fuse, outliving_shares
from gpuplan.profiles.profile import (
    CATEGORIES,
    Affine,
    Kernel,
    KernelKind,
    MemoryStream,
    Segment,
    StepTrace,
)

READ, WRITTEN = 4000, 1000


def kernel(op: str, kind: KernelKind) -> Kernel:
    return Kernel(
        kind=kind,
        op=op,
        dims={"elements": Affine(0, WRITTEN)},
        dtype="16bit",
        flops=Affine(0),
        bytes_read=Affine(0, READ),
        bytes_written=Affine(0, WRITTEN),
    )


def fused(*kernels: Kernel) -> tuple[Kernel, ...]:
    return fuse(Segment(name="", phase="forward", block=None, kernels=kernels)).kernels


ADD = kernel("add", "pointwise")
PRODUCT = kernel("bmm", "gemm")


def test_runs_between_products_become_one_kernel_without_their_inner_results():
    merged, product, last = fused(ADD, ADD, PRODUCT, ADD)
    assert merged.bytes_written == ADD.bytes_written
    assert merged.bytes_read == Affine(0, 2 * READ - WRITTEN)
    assert (product, last) == (PRODUCT, ADD)


def test_complex_numbers_and_transforms_stay_kernels_of_torch():
    complex_sum, transform = kernel("add.complex", "pointwise"), kernel("_fft_c2c", "fft")
    assert fused(ADD, complex_sum, complex_sum) == (ADD, complex_sum, complex_sum)
    assert fused(ADD, transform, ADD) == (ADD, transform, ADD)


@pytest.mark.parametrize(
    ("op", "kind", "reads"),
    [
        ("_softmax", "softmax", 2),
        ("_softmax_backward_data", "softmax", 1),
        ("native_layer_norm", "norm", 2),
        ("rms_norm", "norm", 1),
        ("rms_norm_backward", "norm", 2),
    ],
)
def test_separate_reductions_read_their_operands_again(op: str, kind: KernelKind, reads: int):
    (alone,) = fused(kernel(op, kind))
    (in_run,) = fused(ADD, kernel(op, kind))
    assert alone.dims[REREAD] == in_run.dims[REREAD] == Affine(0, reads * READ)


def step(*kernels: Kernel, deaths: dict[int, int], category: str = "activations") -> StepTrace:
    """Return a step of which the kernel at each tick made a storage that dies as stated."""
    births = sorted(deaths)
    return StepTrace(
        numerics="amp16",
        recompute="none",
        segments=(
            Segment(name="", phase="backward", block=None, kernels=()),
            Segment(
                name="",
                phase="forward",
                block=None,
                kernels=kernels,
                offsets=tuple(range(len(kernels))),
            ),
        ),
        schedule=[0, 1],
        start_tick=[0, 10],
        memory=MemoryStream(
            birth_tick=[10 + birth for birth in births],
            death_tick=[10 + deaths[birth] for birth in births],
            bytes_base=[0] * len(births),
            bytes_per_sample=[WRITTEN] * len(births),
            category=[CATEGORIES.index(category)] * len(births),
            instance=[1] * len(births),
            end_tick=100,
        ),
    )


def test_a_result_that_is_used_behind_its_run_is_written_too():
    trace = step(ADD, ADD, PRODUCT, ADD, deaths={0: 3, 1: 3, 2: 4, 3: 9})
    shares = outliving_shares(trace)
    assert shares == ((), (1.0, 1.0, 1.0, 1.0))
    merged, *_ = fuse(trace.segments[1], shares[1]).kernels
    assert merged.bytes_written == Affine(0, 2 * WRITTEN)
    assert merged.bytes_read == Affine(0, 2 * READ - WRITTEN)


def test_a_result_of_the_run_alone_is_not_written():
    trace = step(ADD, ADD, PRODUCT, deaths={0: 2, 1: 3})
    assert outliving_shares(trace)[1] == (0.0, 1.0, 0.0)
    merged, _ = fuse(trace.segments[1], outliving_shares(trace)[1]).kernels
    assert merged.bytes_written == ADD.bytes_written


def test_a_result_that_is_changed_in_place_is_written_once():
    trace = step(ADD, ADD, PRODUCT, deaths={0: 50})
    merged, _ = fuse(trace.segments[1], outliving_shares(trace)[1]).kernels
    assert merged.bytes_written == ADD.bytes_written


def test_of_a_rank_it_is_the_same_share_of_less():
    trace = step(ADD, ADD, deaths={0: 9, 1: 9})
    half = ADD.model_copy(update={"bytes_written": Affine(0, WRITTEN / 2)})
    rank = trace.segments[1].model_copy(update={"kernels": (half, half)})
    (merged,) = fuse(rank, outliving_shares(trace)[1]).kernels
    assert merged.bytes_written == Affine(0, WRITTEN)


def test_shares_of_a_softmax_are_written_for_the_product_whatever_else_a_run_makes():
    softmax = kernel("_softmax", "softmax")
    trace = step(softmax, ADD, PRODUCT, deaths={1: 3})
    assert outliving_shares(trace)[1] == (1.0, 1.0, 0.0)


def test_what_several_layers_cast_is_cast_once():
    cast = kernel("_to_copy", "copy")
    deaths = {0: 4, 1: 50, 2: 50, 3: 50, 4: 50}
    norm = ADD.model_copy(update={"bytes_written": Affine(0, READ)})
    trace = step(norm, cast, PRODUCT, cast, PRODUCT, deaths=deaths, category="temporary")
    shares = outliving_shares(trace)[1]
    assert shares == (0.0, 1.0, 1.0, None, 1.0)
    assert [k.op for k in fuse(trace.segments[1], shares).kernels] == ["add+_to_copy", "bmm", "bmm"]


def test_casts_of_other_sizes_and_of_weights_run():
    cast = kernel("_to_copy", "copy")
    larger = cast.model_copy(update={"bytes_read": Affine(0, 2 * READ)})
    weight = cast.model_copy(update={"bytes_read": Affine(READ)})
    trace = step(cast, PRODUCT, larger, PRODUCT, weight, PRODUCT, weight, deaths={})
    assert None not in outliving_shares(trace)[1]


def test_a_result_that_is_cast_at_once_is_written_where_it_is_kept_alone():
    cast = kernel("_to_copy", "copy")
    norm = ADD.model_copy(update={"bytes_written": Affine(0, READ)})
    named = step(norm, cast, PRODUCT, deaths={0: 3, 1: 50}, category="temporary")
    kept = step(norm, cast, PRODUCT, deaths={0: 50, 1: 50})
    assert outliving_shares(named)[1] == (0.0, 1.0, 0.0)
    assert outliving_shares(kept)[1] == (WRITTEN / READ, 1.0, 0.0)
