"""What Megatron's blocks keep: byte by byte, on a block of a decoder and one of a mixture."""

from collections.abc import Callable
from typing import Any

import pytest

from gpuplan.catalog.vocabulary import Recompute
from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.fused_kernels import with_fused_kernels
from gpuplan.profiles.passes.megatron_blocks import (
    AS_WRITTEN,
    MegatronBlocks,
    with_megatron_blocks,
)
from gpuplan.profiles.passes.recompute import recomputed
from gpuplan.profiles.passes.storages import storages_of
from gpuplan.profiles.profile import KERNEL_KINDS, Profile, StepTrace
from gpuplan.profiles.trace.trace import trace_workload

TOKENS, HIDDEN, FFN, HEADS, KV_HEADS = 64, 256, 512, 4, 2
BOTH = MegatronBlocks(copies_values=True, weights_inside_experts=True)


def kept(step: StepTrace, kind: str) -> list[float]:
    """Return what outlives the forward pass of a block, over the bytes of the residual stream."""
    forward = [
        index
        for index, number in enumerate(step.schedule)
        if step.segments[number].phase == "forward" and step.segments[number].block
    ]
    sizes = [
        row["bytes_per_sample"] / (2 * TOKENS * HIDDEN)
        for row in storages_of(step.memory)
        if row["instance"] == forward[1]
        and row["death_tick"] > step.start_tick[forward[2]]
        and KERNEL_KINDS[row["producer"]] == kind
    ]
    return sorted(size for size in sizes if size > 0.1)


PARAMS = {
    "layers": 3,
    "hidden": HIDDEN,
    "heads": HEADS,
    "kv_heads": KV_HEADS,
    "ffn": FFN,
    "ffn_kind": "swiglu",
    "vocab": 512,
    "seq_len": TOKENS,
}


@pytest.fixture
def mixture(example_workload: Callable[..., Any]) -> Callable[[], tuple[StepTrace, Profile]]:
    def make() -> tuple[StepTrace, Profile]:
        workload = example_workload("decoder", **PARAMS, experts=8, active_experts=3)
        profile = trace_workload(workload, numerics=["pure16"])
        return with_fused_kernels(profile.step("pure16")), profile

    return make


@pytest.fixture
def decoder(example_workload: Callable[..., Any]) -> Callable[..., StepTrace]:
    def make(**others: object) -> StepTrace:
        workload = example_workload("decoder", **{**PARAMS, **others})
        return with_fused_kernels(trace_workload(workload, numerics=["pure16"]).step("pure16"))

    return make


def test_values_are_copied_out_of_what_one_layer_gave(decoder: Callable[..., StepTrace]) -> None:
    step = decoder()
    gate_and_up, mixed = 2 * [FFN / HIDDEN], 1 + 2 * KV_HEADS / HEADS
    assert kept(step, "gemm") == sorted([*gate_and_up, mixed])
    # Queries and keys behind their rotation stay, and so does what attention gives.
    lean = with_megatron_blocks(step, BOTH)
    assert kept(lean, "gemm") == sorted([*gate_and_up, KV_HEADS / HEADS])
    assert kept(lean, "pointwise") == kept(step, "pointwise")
    assert kept(lean, "attention") == kept(step, "attention")


def test_values_stay_where_queries_and_keys_do(decoder: Callable[..., StepTrace]) -> None:
    """Nothing is rotated: queries, keys and values are slices of one tensor, which is kept."""
    step = decoder(ffn_kind="gelu")
    assert kept(with_megatron_blocks(step, BOTH), "gemm") == kept(step, "gemm")


def test_norms_of_queries_and_keys_keep_what_they_are_given(
    decoder: Callable[..., StepTrace],
) -> None:
    step = decoder(qk_norm=True)
    mixed = 1 + 2 * KV_HEADS / HEADS
    assert mixed in kept(step, "gemm")
    assert kept(with_megatron_blocks(step, BOTH), "gemm") == kept(step, "gemm")


def test_values_of_latent_attention_are_a_part_too(decoder: Callable[..., StepTrace]) -> None:
    step = decoder(
        attention_kind="mla",
        kv_heads=HEADS,
        q_lora_rank=64,
        kv_lora_rank=32,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=48,
    )
    lean = with_megatron_blocks(step, MegatronBlocks(copies_values=True))
    both_of, values = HEADS * (32 + 48) / HIDDEN, HEADS * 48 / HIDDEN
    assert both_of in kept(step, "gemm") and values not in kept(step, "gemm")
    assert values in kept(lean, "gemm") and both_of not in kept(lean, "gemm")


def test_weighted_inside_experts_the_last_product_is_let_go_of(
    decoder: Callable[..., StepTrace],
) -> None:
    active = 3
    step = decoder(experts=8, active_experts=active, ffn=128)
    # What experts give, of each token `active` times.
    assert kept(step, "gemm").count(active) == 1
    outside = with_megatron_blocks(step, MegatronBlocks(copies_values=True))
    assert kept(outside, "gemm").count(active) == 1
    inside = with_megatron_blocks(step, BOTH)
    assert kept(inside, "gemm").count(active) == 0
    # What goes into the activation function is kept: gate and up, of half the width.
    assert kept(inside, "gemm").count(active * 128 / HIDDEN) == 2


def test_what_is_activated_may_wait_in_8_bits(decoder: Callable[..., StepTrace]) -> None:
    step = decoder(kv_heads=HEADS)
    narrow = with_megatron_blocks(step, MegatronBlocks(activates_8_bits=True))
    assert kept(step, "gemm") == [FFN / HIDDEN, FFN / HIDDEN, 3.0]
    assert kept(narrow, "gemm") == [FFN / HIDDEN / 2, FFN / HIDDEN / 2, 3.0]


def test_norms_read_the_joint_layer_in_16_bits(decoder: Callable[..., StepTrace]) -> None:
    step = decoder(kv_heads=HEADS, qk_norm=True)
    narrow = with_megatron_blocks(step, MegatronBlocks(activates_8_bits=True))
    assert kept(narrow, "gemm") == [FFN / HIDDEN / 2, FFN / HIDDEN / 2, 3.0]


@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_what_is_let_go_of_lives_where_blocks_run_again(
    mixture: Callable[[], tuple[StepTrace, Profile]], recompute: Recompute
) -> None:
    step, profile = mixture()
    again = recomputed(with_megatron_blocks(step, BOTH), profile, recompute)
    rows = storages_of(again.memory)
    assert all(row["birth_tick"] < row["death_tick"] for row in rows)
    peak = replay(again, 1).peak_allocated_bytes
    assert peak <= replay(recomputed(step, profile, recompute), 1).peak_allocated_bytes


def test_as_written_changes_nothing(decoder: Callable[..., StepTrace]) -> None:
    step = decoder()
    assert with_megatron_blocks(step, AS_WRITTEN) is step
