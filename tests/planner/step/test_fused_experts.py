"""What a rank's experts take where Megatron's newest kernels permute and cast on the way."""

from dataclasses import replace

import numpy as np
import pytest
from no_storages import no_storages

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.constants import Constants
from gpuplan.planner.software.stack import facts_of
from gpuplan.planner.step.kernel_totals import StepKernels
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.profile import Affine, Kernel, KernelKind, Segment, StepTrace

CATALOGUE = load_catalogue()
CONSTANTS = Constants.shipped()
NOTHING = no_storages()
TOKENS, WIDTH, LOCAL, ALL = 4096, 2048, 16, 128


def gather() -> Kernel:
    moved = Affine(0, 16 * TOKENS * WIDTH)
    return Kernel(
        kind="embedding",
        op="aten.index",
        dims={},
        dtype="16bit",
        flops=Affine(0, 0),
        bytes_read=moved,
        bytes_written=moved,
    )


def product(*, spread: bool) -> Kernel:
    whole = {"experts": Affine(ALL, 0)} if spread else {}
    return Kernel(
        kind="gemm",
        op="aten.bmm",
        dims={
            "batch": Affine(LOCAL, 0),
            "m": Affine(0, TOKENS),
            "n": Affine(WIDTH, 0),
            "k": Affine(WIDTH, 0),
            **whole,
        },
        dtype="16bit",
        flops=Affine(0, 2 * LOCAL * TOKENS * WIDTH**2),
        bytes_read=Affine(0, 2 * LOCAL * TOKENS * WIDTH),
        bytes_written=Affine(0, 2 * LOCAL * TOKENS * WIDTH),
        linear=True,
    )


def seconds(date: tuple[int, int] | None, *, spread: bool = True) -> dict[KernelKind, float]:
    kernels = (gather(), product(spread=spread))
    trace = StepTrace(
        numerics="amp16",
        recompute="none",
        segments=(Segment(name="step", phase="forward", block=None, kernels=kernels),),
        schedule=[0],
        start_tick=[0],
        memory=NOTHING,
    )
    stack = replace(facts_of("megatron", CONSTANTS), date=date, routing_passes=2.0)
    step = StepKernels([trace], np.array([1.0]), fused=True)
    return step.kind_seconds(
        curves_for(CATALOGUE.accelerators["GB300"]), precision="fp8", stack=stack
    )


def test_the_dispatch_permutes_and_products_cast_themselves():
    before, since = seconds((2026, 4)), seconds((2026, 6))
    assert since["embedding"] == 0 < before["embedding"]
    assert since["gemm"] < before["gemm"]
    assert seconds(None) == since, "what a plan for today's software takes"


def test_without_a_dispatch_tokens_are_gathered_as_ever():
    before, since = seconds((2026, 4), spread=False), seconds((2026, 6), spread=False)
    assert since["embedding"] == pytest.approx(before["embedding"]) != 0
    assert since["gemm"] < before["gemm"]
