"""The collectives of one step, and where in the step each of them runs; no machine changes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ...catalog.vocabulary import Collective
from ..memory.rank_memory import DDP_BUCKET_BYTES
from ..parallelism.fsdp import Call, Unit, collective_calls
from ..plan.layout import Layout

Slot = Literal[
    "first_forward_s",
    "forward_s",
    "forward_bare_s",
    "backward_s",
    "backward_bare_s",
    "last_backward_s",
    "last_backward_bare_s",
    "after_s",
]


@dataclass(frozen=True, kw_only=True)
class WireBytes:
    """Bytes per parameter on the wire."""

    gather: float
    """FSDP's all-gather, in the compute dtype."""
    reduce: float
    """Gradient reduction."""
    refresh: float
    """All-gather of updated parameters under ZeRO-1 and ZeRO-2."""
    coalesced: bool = True
    """Whether tensors are gathered and reduced together; one by one, the links are never full."""
    bucket_bytes: int = DDP_BUCKET_BYTES
    """Gradients that are reduced in one call without FSDP."""
    refresh_overlaps: bool = False
    """Whether updated parameters are gathered under the first forward pass, not before it."""
    overlaps: bool = True
    """Whether anything runs beside collectives."""
    sharded_by_unit: bool = True
    """Whether ZeRO-1 and ZeRO-2 are FSDP that keeps what it gathered in forward (torch), not
    buckets and a refresh after the optimizer (DeepSpeed)."""
    keeps_gathered: bool = False
    """Whether ZeRO-2 keeps what it gathered for the next micro-batch (`gpuplan run`)."""
    once_in_stages: bool = False
    """Whether FSDP beside pipeline stages gathers and reduces once a step (torch)."""
    sharded_by_tensor: bool = False
    """Whether ZeRO-1 gives whole tensors to ranks, each of which broadcasts its own (InternEvo)."""
    reduces_apart: bool = False
    """Whether ZeRO-1 and ZeRO-2 reduce gradients while nothing else runs (DeepSpeed)."""
    reduces_whole: bool = False
    """Whether they all-reduce gradients of which a rank needs its shard alone (DeepSpeed)."""
    synced_norms: tuple[int, ...] = ()
    """Channels of each norm whose statistics are those of all ranks (SyncBatchNorm)."""


@dataclass(frozen=True)
class SlottedCall:
    """A collective that runs `count` times, and where in the step."""

    slot: Slot
    kind: Collective
    total_bytes: float
    ranks: int
    count: int = 1
    across_replicas: bool = False


@lru_cache(maxsize=4096)
def slotted_calls(
    units: tuple[Unit, ...], layout: Layout, wire: WireBytes
) -> tuple[SlottedCall, ...]:
    """Return the collectives of one step under a layout; they do not depend on the machine.

    Args:
        units: of the model.
        layout: of which the data dimension is looked at.
        wire: bytes per parameter.
    """
    if layout.data == 1:
        return ()
    return (*_norm_calls(wire.synced_norms, layout.data), *_parameter_calls(units, layout, wire))


def _norm_calls(channels: tuple[int, ...], ranks: int) -> Iterator[SlottedCall]:
    """Yield what norms of all ranks exchange in each micro-batch, while everything else waits.

    Forward mean, spread and count of every rank, backward two sums of each channel, in fp32
    (torch, torch/nn/modules/_functions.py, `SyncBatchNorm`).
    """
    for size, count in Counter(channels).items():
        gathered, reduced = 4.0 * (2 * size + 1) * ranks, 4.0 * 2 * size
        for slot in ("forward_s", "forward_bare_s"):
            yield SlottedCall(slot, "all_gather", gathered, ranks, count)
        for slot in ("backward_s", "backward_bare_s"):
            yield SlottedCall(slot, "all_reduce", reduced, ranks, count)


def _parameter_calls(
    units: tuple[Unit, ...], layout: Layout, wire: WireBytes
) -> tuple[SlottedCall, ...]:
    """Return the collectives of parameters and their gradients.

    DDP all-reduces buckets of gradients during the last backward, with zeros in them for what the
    loss leaves out (reducer.cpp, `mark_variable_ready_dense`); Megatron's and DeepSpeed's ZeRO-1
    and ZeRO-2 reduce-scatter them (ZeRO-2 in every micro-batch) and gather the updated parameters
    after the optimizer, or in units of layers under the next forward pass; FSDP is
    `collective_calls`, torch's ZeRO-2 is FSDP that gathers once, and its ZeRO-1 also reduces once.
    Where ranks own whole tensors all ranks reduce all gradients, and every owner broadcasts
    (InternLM, internlm/solver/optimizer/hybrid_zero_optim.py@01e7fd61).
    """
    is_fsdp = layout.zero_stage == 3 or (layout.zero_stage > 0 and wire.sharded_by_unit)
    if is_fsdp and layout.shard > 1:
        return tuple(_fsdp_calls(units, layout, wire))
    trainable = sum((unit.trainable + unit.unused) * unit.count for unit in units)
    gradients = trainable * wire.reduce
    buckets = max(1, round(gradients / wire.bucket_bytes))
    owned = layout.zero_stage == 1 and layout.shard > 1 and wire.sharded_by_tensor
    sharded = layout.zero_stage in (1, 2) and layout.shard > 1 and not owned
    scatters = sharded and not wire.reduces_whole
    kind: Collective = "reduce_scatter" if scatters else "all_reduce"
    slot: Slot = "backward_s" if layout.zero_stage == 2 else "last_backward_s"
    bare: Slot = "backward_bare_s" if layout.zero_stage == 2 else "last_backward_bare_s"
    size, ranks = gradients / buckets, layout.shard if sharded else layout.data
    calls = (
        SlottedCall(slot, kind, size, ranks, buckets),
        SlottedCall(bare, kind, size, ranks, buckets if sharded and wire.reduces_apart else 1),
    )
    if sharded and layout.replicas > 1:
        # State is shared by fewer ranks than there are: each shard is reduced over its copies.
        across = size / layout.shard
        calls += (
            SlottedCall(slot, "all_reduce", across, layout.shard, buckets, across_replicas=True),
        )
    if sharded or owned:
        gathered: Slot = "first_forward_s" if wire.refresh_overlaps else "after_s"
        # NCCL broadcasts along one ring, as one round of an all-gather of the same bytes.
        owners = min(layout.shard, _trained_tensors(units)) if owned else 1
        size = trainable * wire.refresh / owners
        calls += (SlottedCall(gathered, "all_gather", size, layout.shard, owners),)
    return calls


def _trained_tensors(units: tuple[Unit, ...]) -> int:
    return max(1, sum(unit.count * unit.trainable_tensors for unit in units))


def _fsdp_calls(units: tuple[Unit, ...], layout: Layout, wire: WireBytes) -> list[SlottedCall]:
    """Return FSDP's collectives; HSDP's all-reduce of shards runs in the last backward only."""
    staged = wire.once_in_stages and layout.pipeline > 1
    # ZeRO-1 leaves casting to autocast: its parameters are gathered as the optimizer keeps them.
    calls = collective_calls(
        units,
        shard=layout.shard,
        replicas=layout.replicas,
        gather_bytes=wire.refresh if layout.zero_stage == 1 else wire.gather,
        reduce_bytes=wire.reduce,
    )
    counts: dict[SlottedCall, int] = {}
    # The blocks of a group are equal, so that a few calls are made many times.
    for call, times in Counter(calls).items():
        kept = layout.zero_stage < 3 or staged
        if kept and (call.phase, call.kind) == ("backward", "all_gather"):
            continue  # What was gathered in forward is kept.
        across = call.kind == "all_reduce"
        once = layout.zero_stage == 1 or staged
        gathers_once = once or (layout.zero_stage == 2 and wire.keeps_gathered)
        for place in _places(call, once=once, gathers_once=gathers_once, staged=staged):
            size = call.total_bytes
            one = SlottedCall(place, call.kind, size, layout.shard, across_replicas=across)
            counts[one] = counts.get(one, 0) + times
    return [
        SlottedCall(c.slot, c.kind, c.total_bytes, c.ranks, n, c.across_replicas)
        for c, n in counts.items()
    ]


def _places(call: Call, *, once: bool, gathers_once: bool, staged: bool) -> tuple[Slot, ...]:
    """Return where in the step FSDP sends a call, and where it has nothing to hide under.

    The root is gathered first and reduced last: nothing runs beside it. A pipeline stage reduces
    everything when its last backward pass has ended (torch, `perform_reduce_grad`).
    """
    if call.kind == "all_reduce":
        return ("last_backward_s",)
    if staged and call.kind == "reduce_scatter":
        return ("last_backward_s", "last_backward_bare_s")
    alone = call.unit is None
    if call.kind == "all_gather" and gathers_once:
        return ("after_s",) if alone else ("first_forward_s",)
    if call.kind == "all_gather":
        slot: Slot = "forward_s" if call.phase == "forward" else "backward_s"
        return (slot, "forward_bare_s") if alone else (slot,)
    slot = "last_backward_s" if once else "backward_s"
    bare: Slot = "last_backward_bare_s" if once else "backward_bare_s"
    return (slot, bare) if alone else (slot,)
