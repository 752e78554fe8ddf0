"""The kernels of a step by the time they take, whatever FLOPs they have."""

import pytest
from no_storages import no_storages

from gpuplan.profiles.analysis.costliest_kernels import (
    costliest_kernels,
    kernels_of,
    step_device_s,
)
from gpuplan.profiles.profile import Affine, Kernel, KernelKind, Segment, StepTrace


def kernel(kind: KernelKind, op: str, flops: float) -> Kernel:
    return Kernel(
        kind=kind,
        op=op,
        dims={"elements": Affine(0, 8)},
        dtype="fp32",
        flops=Affine(0, flops),
        bytes_read=Affine(0, 64),
        bytes_written=Affine(0, 32),
    )


@pytest.fixture
def step() -> StepTrace:
    block = Segment(
        name="block",
        phase="forward",
        block="blocks",
        kernels=(kernel("gemm", "mm", 1e9), kernel("norm", "native_layer_norm", 0)),
    )
    rest = Segment(
        name="optimizer",
        phase="optimizer",
        block=None,
        kernels=(kernel("optimizer", "_foreach_mul", 0), kernel("optimizer", "_foreach_add", 0)),
    )
    empty = no_storages()
    return StepTrace(
        numerics="fp32",
        recompute="none",
        segments=(block, rest),
        schedule=[0, 0, 0, 1],
        start_tick=[0, 2, 4, 6],
        memory=empty,
    )


def test_the_longest_come_first_and_not_those_with_most_flops(step: StepTrace) -> None:
    run_s = [1.0, 2.0, 5.0, 6.0]
    assert [one.op for one in kernels_of(step)][:2] == ["mm", "native_layer_norm"]
    found = costliest_kernels(step, 4, run_s)
    assert [(one.kind, one.device_s, one.times) for one in found] == [
        ("optimizer", 11.0, 2),
        ("norm", 6.0, 3),
        ("gemm", 3.0, 3),
    ]
    assert found[2].flops == 3 * 4e9 and found[1].traffic_bytes == 3 * 4 * 96
    assert sum(one.device_s for one in found) == step_device_s(step, run_s)
    assert len(costliest_kernels(step, 4, run_s, limit=1)) == 1
