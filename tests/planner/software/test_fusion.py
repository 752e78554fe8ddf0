"""What a compiler makes of runs of memory-bound kernels."""

import pytest

from gpuplan.planner.software.fusion import REREAD, fuse
from gpuplan.profiles.profile import Affine, Kernel, KernelKind, Segment

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


SOFTMAX = kernel("_softmax", "softmax")
ADD = kernel("add", "pointwise")
PRODUCT = kernel("bmm", "gemm")


def test_runs_between_products_become_one_kernel_without_their_inner_results():
    merged, product, last = fused(ADD, ADD, PRODUCT, ADD)
    assert merged.bytes_written == ADD.bytes_written
    assert merged.bytes_read == Affine(0, 2 * READ - WRITTEN)
    assert (product, last) == (PRODUCT, ADD)


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


def test_shares_are_written_for_the_product_whatever_else_a_run_makes():
    (merged,) = fused(SOFTMAX, ADD)
    assert merged.dims[REREAD] == Affine(0, 2 * READ + WRITTEN)
    assert REREAD not in fused(ADD, ADD)[0].dims
