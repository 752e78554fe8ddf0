"""What it takes to make 8-bit operands: once per operand, and nothing where nothing is cast."""

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Precision
from gpuplan.planner.parallelism.column_row_parallel import GATHERED_RANKS
from gpuplan.planner.step.kernels.kernel_times import KernelTable
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.profile import Affine, Kernel

CURVES = curves_for(load_catalogue().accelerators["H100-80GB-SXM"])
TOKENS, WIDE, NARROW = 4096, 8192, 2048


def product(m: Affine, n: int, k: Affine, *, linear: bool = True) -> Kernel:
    return Kernel(
        kind="gemm",
        op="aten.mm",
        dims={"batch": Affine(1, 0), "m": m, "n": Affine(n, 0), "k": k},
        dtype="16bit",
        flops=Affine(0, 2 * TOKENS * WIDE * NARROW),
        bytes_read=Affine(0, 0),
        bytes_written=Affine(0, 0),
        linear=linear,
    )


TOKENS_OF = Affine(0, TOKENS)
FORWARD = product(TOKENS_OF, WIDE, Affine(NARROW, 0))
INPUT_GRADIENT = product(TOKENS_OF, NARROW, Affine(WIDE, 0))
WEIGHT_GRADIENT = product(Affine(WIDE, 0), NARROW, TOKENS_OF)


def cast_s(kernel: Kernel, *, precision: Precision = "fp8", samples: int = 1) -> float:
    table = KernelTable([kernel], np.array([samples]))
    with_casts, without = (
        table.device_s(CURVES, precision, cast_bytes=size).item() for size in (6.0, 0.0)
    )
    return with_casts - without


def test_each_operand_is_cast_once():
    weight = WIDE * NARROW
    for kernel, elements in (
        (FORWARD, TOKENS * NARROW + weight / 2),
        (INPUT_GRADIENT, TOKENS * WIDE + weight / 2),
    ):
        expected = float(CURVES.memory_bound_s(6 * elements, kind="copy"))
        assert cast_s(kernel) == pytest.approx(expected)
    assert cast_s(WEIGHT_GRADIENT) == 0


def test_casts_grow_with_the_batch_and_are_only_for_linear_layers_in_fp8():
    assert cast_s(FORWARD, samples=8) > 4 * cast_s(FORWARD)
    assert cast_s(FORWARD, precision="bf16-amp") == 0
    unlinear = product(TOKENS_OF, WIDE, Affine(NARROW, 0), linear=False)
    assert cast_s(unlinear) == 0


def test_ranks_that_cast_before_they_gather_cast_their_own_part():
    gathered = FORWARD.model_copy(update={"dims": {**FORWARD.dims, GATHERED_RANKS: Affine(8)}})
    whole, weight = TOKENS * NARROW, WIDE * NARROW / 2
    # The copy in the other order, one byte of the six, is made of all rows.
    moved = 6 * weight + (5 / 8 + 1) * whole
    expected = float(CURVES.memory_bound_s(moved, kind="copy"))
    assert cast_s(gathered) == pytest.approx(expected)
