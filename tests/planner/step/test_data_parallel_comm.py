"""Collectives of the data dimension: where ranks own whole tensors, and what they hide under."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from gpuplan.planner.parallelism.fsdp import Unit
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.predict.setup import wire_bytes
from gpuplan.planner.software.versions import SHARDED_BY_TENSOR
from gpuplan.planner.step.data_parallel_comm import SlottedCall, Traffic, slotted_calls

BLOCK = Unit(
    name="layers", count=4, parameters=1000, trainable=1000, tensors=(), trainable_tensors=9
)
ROOT = Unit(name=None, count=1, parameters=500, trainable=500, tensors=(), trainable_tensors=3)
TENSORS = 4 * 9 + 3
PARAMETERS = 4 * 1000 + 500
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


def test_plain_data_parallelism_owns_nothing() -> None:
    assert "after_s" not in calls_of(Layout(data=64))


def traffic(*, last_s: float, every_s: float = 0.0) -> Traffic:
    """Return the collectives of one layout whose last bucket hides as all others do."""
    nothing = np.zeros((1, 1))
    seconds = {field.name: nothing for field in fields(Traffic) if field.name.endswith("_s")}
    seconds |= {"last_backward_s": nothing + last_s, "backward_s": nothing + every_s}
    return Traffic(**seconds, hiding_cost=nothing, hiding_share=1.0, straggling=nothing)


def test_reductions_of_once_a_step_hide_under_the_passes_behind_them() -> None:
    forward_s, backward_s, accum = np.array([[1.0]]), np.array([[2.0]]), np.array([[16]])
    reduced = traffic(last_s=20.0)
    alone = reduced.exposed_s(forward_s, backward_s, accum)
    chunks = reduced.exposed_s(forward_s, backward_s, accum, covering=np.array([[6.0]]))
    assert alone.item() == pytest.approx(20 - 2, abs=0.01)
    assert chunks.item() == pytest.approx(20 - 12, abs=0.2)


def test_what_runs_in_every_micro_batch_hides_under_its_own() -> None:
    forward_s, backward_s, accum = np.array([[1.0]]), np.array([[2.0]]), np.array([[16]])
    gathered = traffic(last_s=1.0, every_s=20.0)
    alone = gathered.exposed_s(forward_s, backward_s, accum)
    chunks = gathered.exposed_s(forward_s, backward_s, accum, covering=np.array([[6.0]]))
    assert chunks.item() == alone.item()
