"""The collectives of a step: who sends what where ranks own whole tensors, and where in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuplan.planner.parallelism.fsdp import Unit
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.predict.setup import wire_bytes
from gpuplan.planner.software.versions import GATHERED_ONCE, SHARDED_BY_TENSOR
from gpuplan.planner.step.slotted_calls import SlottedCall, slotted_calls

BLOCK = Unit(
    name="layers", count=4, parameters=1000, trainable=1000, tensors=(), trainable_tensors=9
)
ROOT = Unit(name=None, count=1, parameters=500, trainable=500, tensors=(), trainable_tensors=3)
TENSORS = 4 * 9 + 3
PARAMETERS = 4 * 1000 + 500
KINDS = ("all_gather", "reduce_scatter")
BY_TENSOR = wire_bytes("bf16-amp", "megatron", (2023, 11), frozenset({SHARDED_BY_TENSOR}))
BY_BUCKET = wire_bytes("bf16-amp", "megatron", (2023, 11))


def calls_of(layout: Layout, wire: object = BY_TENSOR) -> dict[str, SlottedCall]:
    """Return the collectives of one step by their slot."""
    return {call.slot: call for call in slotted_calls((BLOCK, ROOT), layout, wire)}


@pytest.mark.parametrize("shard", [2, 8, 32, 64, 1024])
def test_each_owner_broadcasts_what_it_updated(shard: int) -> None:
    sent = calls_of(Layout(data=1024, shard=shard, zero_stage=1))["after_s"]
    assert sent.count == min(shard, TENSORS)  # Ranks beyond the tensors own none.
    assert sent.ranks == shard
    assert sent.count * sent.total_bytes == pytest.approx(2 * PARAMETERS)


def test_all_ranks_reduce_all_gradients_where_tensors_are_owned() -> None:
    reduced = calls_of(Layout(data=64, shard=8, zero_stage=1))["last_backward_s"]
    assert (reduced.kind, reduced.ranks) == ("all_reduce", 64)


def test_buckets_are_gathered_at_once_where_tensors_are_not_owned() -> None:
    calls = calls_of(Layout(data=64, shard=64, zero_stage=1), BY_BUCKET)
    assert (calls["after_s"].kind, calls["after_s"].count) == ("all_gather", 1)
    assert calls["last_backward_s"].kind == "reduce_scatter"


def test_zero_2_of_torch_gathers_once_a_step_and_scatters_in_every_micro_batch() -> None:
    wire = wire_bytes("bf16-amp", "torch-eager")
    found = slotted_calls((BLOCK, ROOT), Layout(data=8, shard=8, zero_stage=2), wire)
    slots = {kind: {one.slot for one in found if one.kind == kind} for kind in KINDS}
    assert slots["all_gather"] == {"first_forward_s", "after_s"}
    assert slots["reduce_scatter"] == {"backward_s", "backward_bare_s"}
    elsewhere = wire_bytes("bf16-amp", "torch-eager", (2024, 6))
    found = slotted_calls((BLOCK, ROOT), Layout(data=8, shard=8, zero_stage=2), elsewhere)
    gathers = {one.slot for one in found if one.kind == "all_gather"}
    assert gathers == {"forward_s", "forward_bare_s"}
    ours = wire_bytes("bf16-amp", "torch-eager", (2026, 6), frozenset({GATHERED_ONCE}))
    assert ours == wire
    sent = slotted_calls((BLOCK, ROOT), Layout(data=8, shard=8, zero_stage=3), wire)
    gathers = {one.slot for one in sent if one.kind == "all_gather"}
    assert gathers == {"forward_s", "forward_bare_s", "backward_s"}


def test_plain_data_parallelism_owns_nothing() -> None:
    assert "after_s" not in calls_of(Layout(data=64))


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_deepspeed_reduces_all_gradients_beside_nothing(zero_stage: int) -> None:
    wire = wire_bytes("bf16-amp", "torch-eager", features=frozenset({"deepspeed"}))
    calls = calls_of(Layout(data=8, shard=8, zero_stage=zero_stage), wire)
    covered, bare = [call for slot, call in calls.items() if "backward" in slot]
    assert {covered.kind, bare.kind} == {"all_reduce"}
    assert covered.count == bare.count
    assert calls["after_s"].kind == "all_gather"


def test_deepspeed_beside_megatron_reduces_sums_of_bf16_gradients_in_fp32() -> None:
    layout = Layout(data=8, shard=8, zero_stage=1)
    bf16 = calls_of(layout, wire_bytes("bf16-amp", "megatron", (2022, 2)))["last_backward_bare_s"]
    fp16 = calls_of(layout, wire_bytes("fp16-amp", "megatron", (2022, 2)))["last_backward_bare_s"]
    assert (bf16.kind, fp16.kind) == ("all_reduce", "reduce_scatter")
    assert bf16.count * bf16.total_bytes == 2 * fp16.count * fp16.total_bytes
    own = calls_of(layout, wire_bytes("bf16-amp", "megatron", (2022, 9)))["last_backward_bare_s"]
    assert (own.kind, own.count) == ("reduce_scatter", 1)
    stated = wire_bytes("bf16-amp", "megatron", (2023, 9), frozenset({"deepspeed"}))
    assert calls_of(layout, stated)["last_backward_bare_s"] == bf16


def test_norms_of_all_ranks_exchange_in_every_micro_batch_while_all_else_waits() -> None:
    wire = replace(wire_bytes("bf16-amp"), synced_norms=(64, 64, 128))
    plain = slotted_calls((BLOCK, ROOT), Layout(data=8), wire_bytes("bf16-amp"))
    found = slotted_calls((BLOCK, ROOT), Layout(data=8), wire)
    assert found[-len(plain) :] == plain
    norms = found[: -len(plain)]
    assert {call.slot for call in norms} == {
        "forward_s", "forward_bare_s", "backward_s", "backward_bare_s",
    }  # fmt: skip
    bare = [call for call in norms if "bare" in call.slot]
    assert sum(call.count for call in bare) == 2 * 3
    gathered = [call for call in bare if call.kind == "all_gather"]
    # Mean, spread and one count of each of 8 ranks, in fp32.
    assert sorted(call.total_bytes for call in gathered) == [8 * 4 * 129, 8 * 4 * 257]
    assert slotted_calls((BLOCK, ROOT), Layout(), wire) == ()
