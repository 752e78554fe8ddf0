"""What blocks keep of 8-bit operands: byte by byte, on a block of a decoder and one with a router.

What torch.compile makes again is checked against its partitioner in test_fused_kernels.py.
"""

from collections.abc import Callable
from typing import Any

import pytest

from gpuplan.profiles.passes.fp8_operands import with_kept_operands
from gpuplan.profiles.passes.fused_kernels import with_fused_kernels
from gpuplan.profiles.passes.storages import storages_of
from gpuplan.profiles.profile import KERNEL_KINDS, StepTrace
from gpuplan.profiles.trace.trace import trace_workload

TOKENS, HIDDEN, FFN = 64, 256, 512


def kept_by_kind(step: StepTrace) -> dict[str, list[float]]:
    """Return bytes that outlive the forward pass of a block, over those of the residual stream."""
    forward = [
        index
        for index, number in enumerate(step.schedule)
        if step.segments[number].phase == "forward" and step.segments[number].block
    ]
    found: dict[str, list[float]] = {}
    for row in storages_of(step.memory):
        if row["instance"] == forward[1] and row["death_tick"] > step.start_tick[forward[2]]:
            kind = KERNEL_KINDS[row["producer"]]
            found.setdefault(kind, []).append(row["bytes_per_sample"] / (2 * TOKENS * HIDDEN))
    return {kind: sorted(size for size in sizes if size > 0.1) for kind, sizes in found.items()}


@pytest.fixture
def decoder(example_workload: Callable[..., Any]) -> StepTrace:
    workload = example_workload(
        "decoder",
        layers=3,
        hidden=HIDDEN,
        heads=4,
        kv_heads=4,
        ffn=FFN,
        ffn_kind="swiglu",
        vocab=512,
        seq_len=TOKENS,
    )
    return with_fused_kernels(trace_workload(workload, numerics=["pure16"]).step("pure16"))


def test_norms_and_activation_functions_leave_a_byte_an_element(decoder: StepTrace) -> None:
    before, after = kept_by_kind(decoder), kept_by_kind(with_kept_operands(decoder, "8 bits"))
    assert before["norm"] == [1.0, 1.0] and after["norm"] == [0.5, 0.5]
    # Both residual sums, and queries and keys behind their rotation, stay as they are.
    assert before["pointwise"] == [1.0, 1.0, 1.0, 1.0, FFN / HIDDEN]
    assert after["pointwise"] == [1.0, 1.0, 1.0, 1.0, FFN / HIDDEN / 2]
    assert before["gemm"] == after["gemm"] and before["attention"] == after["attention"] == [1.0]


def test_older_layers_keep_attentions_result_twice(decoder: StepTrace) -> None:
    twice = kept_by_kind(with_kept_operands(decoder, "8 bits, attention's twice"))
    assert twice["attention"] == [1.5]
    assert with_kept_operands(decoder, "16 bits") is decoder


def test_what_a_router_takes_stays_in_16_bits(example_workload: Callable[..., Any]) -> None:
    workload = example_workload(
        "decoder",
        layers=3,
        hidden=HIDDEN,
        heads=4,
        kv_heads=4,
        ffn=FFN,
        ffn_kind="swiglu",
        vocab=512,
        seq_len=TOKENS,
        experts=8,
        active_experts=2,
    )
    step = with_fused_kernels(trace_workload(workload, numerics=["pure16"]).step("pure16"))
    assert kept_by_kind(step)["norm"] == [1.0, 1.0]
    assert kept_by_kind(with_kept_operands(step, "8 bits"))["norm"] == [0.5, 1.0]
