"""What a rank's experts take where Megatron's newest kernels permute and cast on the way."""

from dataclasses import replace

import numpy as np
import pytest
from no_storages import no_storages

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.constants import Constants
from gpuplan.planner.software.dispatch import ExpertHost
from gpuplan.planner.software.stack import facts_of
from gpuplan.planner.step.kernels.kernel_totals import StepKernels
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


def product(*, spread: bool, local: int = LOCAL) -> Kernel:
    whole = {"experts": Affine(ALL, 0)} if spread else {}
    return Kernel(
        kind="gemm",
        op="aten.bmm",
        dims={
            "batch": Affine(local, 0),
            "m": Affine(0, TOKENS),
            "n": Affine(WIDTH, 0),
            "k": Affine(WIDTH, 0),
            **whole,
        },
        dtype="16bit",
        flops=Affine(0, 2 * local * TOKENS * WIDTH**2),
        bytes_read=Affine(0, 2 * local * TOKENS * WIDTH),
        bytes_written=Affine(0, 2 * local * TOKENS * WIDTH),
        linear=True,
    )


def step_trace(*, spread: bool, local: int = LOCAL) -> StepTrace:
    kernels = (gather(), product(spread=spread, local=local))
    return StepTrace(
        numerics="amp16",
        recompute="none",
        segments=(Segment(name="step", phase="forward", block=None, kernels=kernels),),
        schedule=[0],
        start_tick=[0],
        memory=NOTHING,
    )


def seconds(
    date: tuple[int, int] | None, *, spread: bool = True, unfused: bool = False
) -> dict[KernelKind, float]:
    stack = replace(
        facts_of("megatron", CONSTANTS), date=date, routing_passes=2.0, unfused_experts=unfused
    )
    step = StepKernels([step_trace(spread=spread)], np.array([1.0]), fused=[((),)])
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


def forward_s(host: ExpertHost, *, date: tuple[int, int] = (2026, 4), local: int = LOCAL) -> float:
    stack = replace(facts_of("megatron", CONSTANTS), date=date, expert_host=host)
    step = StepKernels([step_trace(spread=True, local=local)], np.array([1.0]), fused=[((),)])
    curves = curves_for(CATALOGUE.accelerators["GB300"])
    (times,) = step.times(curves, precision="fp8", stack=stack)
    return float(times.total_s[0, 0])


def test_what_the_host_launches_after_it_waited_is_added_to_the_devices_time():
    none, once, twice = (
        forward_s(ExpertHost(launch_s=each, waits=True)) for each in (0, 1e-3, 2e-3)
    )
    assert twice - once == pytest.approx(2e-3), "two kernels, 1 ms each"
    assert once > none
    graphed = (2026, 6)
    assert forward_s(ExpertHost(launch_s=1e-3, waits=True), date=graphed) == forward_s(
        ExpertHost(), date=graphed
    ), "one graph of the step"


def test_a_host_that_launches_each_expert_sets_the_pace_where_it_is_slower():
    alone = forward_s(ExpertHost())
    slow = forward_s(ExpertHost(product_s=10 * alone / LOCAL))
    assert slow == pytest.approx(10 * alone, rel=0.001)
    assert forward_s(ExpertHost(product_s=0.1 * alone / LOCAL)) == pytest.approx(alone, rel=0.001)
    few = forward_s(ExpertHost(product_s=10 * alone / LOCAL), local=LOCAL // 4)
    assert few == pytest.approx(slow / 4, rel=0.01), "it takes a time for each expert of the rank"


def test_a_recipe_may_leave_fused_kernels_out():
    assert seconds((2026, 6), unfused=True) == seconds((2026, 4))


@pytest.mark.parametrize(("local", "is_sorted"), [(1, False), (2, True)])
def test_a_rank_with_one_expert_sorts_nothing(local: int, *, is_sorted: bool):
    step = StepKernels([step_trace(spread=True, local=local)], np.array([1.0]), fused=[((),)])
    curves = curves_for(CATALOGUE.accelerators["H100-80GB-SXM"])
    megatron = facts_of("megatron", CONSTANTS)
    without, with_passes = (
        step.kind_seconds(
            curves, precision="bf16-amp", stack=replace(megatron, routing_passes=passes)
        )
        for passes in (0.0, 2.0)
    )
    assert (with_passes["gemm"] > without["gemm"]) is is_sorted
    assert with_passes["embedding"] == without["embedding"]
