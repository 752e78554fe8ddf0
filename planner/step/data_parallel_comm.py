"""The data dimension's collectives of one step, and how much of them compute hides.

Communication C hides under compute W that covers it, but neither perfectly nor for free,

    exposed = (C^6 + (wW)^6)^(1/6) - wW + k·min(C, wW)

with w the share of compute that can hide communication (`hiding_share`) and k the slowdown while
both run (`hiding_cost`: they compete for SMs and memory bandwidth).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from ...catalog.vocabulary import Collective
from ..constants import Constants
from ..hardware.collectives import CallTable, Groups, Links, collective_s
from ..memory.rank_memory import DDP_BUCKET_BYTES
from ..parallelism.fsdp import Call, Unit, collective_calls
from ..plan.layout import Layout

Array = np.ndarray

HIDING_SHARPNESS = 6

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

    gather: int
    """FSDP's all-gather, in the compute dtype."""
    reduce: int
    """Gradient reduction."""
    refresh: int
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
    sharded_by_tensor: bool = False
    """Whether ZeRO-1 gives whole tensors to ranks, each of which broadcasts its own (InternEvo)."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Seconds of collectives, were nothing overlapped; [L, 1] over layouts.

    `forward_s` and `backward_s` run in every micro-batch, `first_forward_s` only in the first one,
    `last_backward_s` only in the last, `after_s` after the optimizer. Of each, `*_bare_s` has no
    compute to hide under: the first gather, and the last bucket or reduce-scatter.
    """

    first_forward_s: Array
    forward_s: Array
    forward_bare_s: Array
    backward_s: Array
    backward_bare_s: Array
    last_backward_s: Array
    last_backward_bare_s: Array
    after_s: Array
    hiding_cost: Array
    """Slowdown while collectives and compute run at the same time."""
    hiding_share: float
    """Share of compute that can hide them."""
    straggling: Array
    """Share of the computing time that ranks wait for the slowest of all."""

    def exposed_s(
        self,
        forward_s: Array,
        backward_s: Array,
        grad_accum: Array,
        *,
        covering: Array | float = 1.0,
    ) -> Array:
        """Return [L, V] seconds by which the collectives lengthen one step of V variants.

        Args:
            forward_s: of one micro-batch.
            backward_s: of one micro-batch.
            grad_accum: micro-batches a step.
            covering: passes of a micro-batch that what runs once a step can hide under
                (`covering_passes`); what runs in every micro-batch hides under its own.
        """
        share, cost = self.hiding_share, self.hiding_cost
        once_a_step = np.where(self.backward_s + self.forward_s > 0, 1.0, covering)
        once = exposed_s(self.forward_s, self.forward_bare_s, forward_s, share=share, cost=cost)
        first = exposed_s(
            self.forward_s + self.first_forward_s,
            self.forward_bare_s,
            once_a_step * forward_s,
            share=share,
            cost=cost,
        )
        each = exposed_s(self.backward_s, self.backward_bare_s, backward_s, share=share, cost=cost)
        last = exposed_s(
            self.backward_s + self.last_backward_s,
            self.backward_bare_s + self.last_backward_bare_s,
            once_a_step * backward_s,
            share=share,
            cost=cost,
        )
        waiting = self.straggling * grad_accum * (forward_s + backward_s)
        others = (grad_accum - 1) * (once + each)
        return first + others + last + self.after_s + waiting

    def rows(self, index: Array) -> Traffic:
        """Return the traffic of these layouts alone, arrays of the index's shape."""
        taken = {
            one.name: getattr(self, one.name)[:, 0][index]
            for one in fields(self)
            if one.name != "hiding_share"
        }
        return replace(self, **taken)


def exposed_s(
    communication_s: Array, bare_s: Array, cover_s: Array, *, share: float, cost: Array
) -> Array:
    """Return seconds by which communication lengthens the compute that covers it.

    Args:
        communication_s: all of it; of which
        bare_s: has nothing to hide under.
        cover_s: compute that runs at the same time.
        share: w of that compute can hide communication.
        cost: slowdown k while both run.
    """
    p = HIDING_SHARPNESS
    covered = communication_s - bare_s
    shade = share * cover_s
    # Scaled by the larger of the two, so that the powers neither overflow nor vanish.
    larger, smaller = np.maximum(covered, shade), np.minimum(covered, shade)
    smooth = larger * (1 + (smaller / np.maximum(larger, 1e-12)) ** p) ** (1 / p)
    return smooth - shade + cost * smaller + bare_s


def data_traffic(
    units: tuple[Unit, ...],
    layouts: Sequence[Layout],
    links: Links,
    wire: WireBytes,
    *,
    stride: int = 1,
) -> Traffic:
    """Return the collectives of the data dimension under each layout.

    Args:
        units: FSDP units of the model.
        layouts: each on as many nodes of the site's kind as it needs.
        links: what they run over.
        wire: bytes per parameter of each collective.
        stride: how far apart neighbouring data ranks lie (tensor ranks stand between them).
    """
    return traffic_of(_rows_of(units, tuple(layouts), stride), links, wire)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrafficRows:
    """Data dimensions whose collectives are timed together; compared by identity, for caches."""

    parts: tuple[tuple[int, tuple[Unit, ...], Layout, int], ...]
    """(row, units, data layout, stride); a row's first part says how its sharding overlaps, and
    several parts of a row, as a model's experts and the rest of it, add up."""
    rows: int


def traffic_of(rows: TrafficRows, links: Links, wire: WireBytes) -> Traffic:
    """Return the collectives of many data dimensions, [rows, 1]."""
    planned = _planned(rows, links.site.domain, wire)
    constants = links.constants
    table = np.zeros((rows.rows, len(_SLOTS)))
    if len(planned.count):
        seconds = collective_s(planned.calls, links)
        if not wire.coalesced:
            slowest = planned.calls.total_bytes / constants["uncoalesced_bytes_per_s"]
            seconds = np.maximum(seconds, slowest)
        np.add.at(table, planned.place, planned.count * seconds)
    fsdp, buckets = constants["hiding_cost.fsdp"], constants["hiding_cost.buckets"]
    return Traffic(
        **{name: table[:, i, None] for i, name in enumerate(_SLOTS)},
        hiding_cost=np.where(planned.is_fsdp, fsdp, buckets),
        hiding_share=constants["hiding_share"] if wire.overlaps else 0.0,
        straggling=constants["straggler"] * planned.doublings,
    )


@lru_cache(maxsize=256)
def _rows_of(units: tuple[Unit, ...], layouts: tuple[Layout, ...], stride: int) -> TrafficRows:
    parts = tuple((row, units, layout, stride) for row, layout in enumerate(layouts))
    return TrafficRows(parts=parts, rows=len(layouts))


_SLOTS = tuple(field.name for field in fields(Traffic) if field.name.endswith("_s"))


def straggling(accelerators: Array, constants: Constants) -> Array:
    """Return the share of a step that synchronous ranks wait for the slowest: more, the more nodes.

    Clocks, memory errors and neighbours make some node slow in every step; the expected maximum
    over nodes grows with their logarithm.
    """
    return constants["straggler"] * _doublings(accelerators)


def _doublings(accelerators: Array) -> Array:
    return np.maximum(0.0, np.log2(accelerators / _ONE_NODE))


_ONE_NODE = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class _Planned:
    """The collectives of several rows, which many sites share."""

    calls: CallTable
    place: tuple[Array, Array]
    """Row and slot of each call."""
    count: Array
    is_fsdp: Array
    """[L, 1] whether FSDP sends them."""
    doublings: Array
    """[L, 1] how often the ranks of one node are doubled."""


@lru_cache(maxsize=256)
def _planned(rows: TrafficRows, domain: int, wire: WireBytes) -> _Planned:
    """Return the collectives of all rows, in groups as wide as the fast link."""
    table = _slotted(rows, wire)
    inside = Groups.packed(table.ranks, domain, table.stride)
    apart = Groups.of_replicas(table.ranks, table.replicas, domain, table.stride)
    groups = Groups(
        **{
            name: np.where(table.across, getattr(apart, name), getattr(inside, name))
            for name in ("per_node", "nodes", "sharing")
        }
    )
    fsdp_stage = 1 if wire.sharded_by_unit else 3
    first = dict(reversed([(row, layout) for row, _, layout, _ in rows.parts]))
    layouts = [first[row] for row in range(rows.rows)]
    return _Planned(
        calls=CallTable(table.kinds, table.total_bytes, groups),
        place=(table.row, table.slot),
        count=table.count,
        is_fsdp=np.array([[layout.zero_stage >= fsdp_stage] for layout in layouts]),
        doublings=_doublings(np.array([[layout.accelerators] for layout in layouts])),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _SlottedCalls:
    """The collectives of many rows, as arrays; no machine changes them."""

    kinds: tuple[Collective, ...]
    total_bytes: Array
    row: Array
    slot: Array
    count: Array
    ranks: Array
    """Of one group; of one copy's shards for what crosses to other copies."""
    replicas: Array
    stride: Array
    across: Array


@lru_cache(maxsize=64)
def _slotted(rows: TrafficRows, wire: WireBytes) -> _SlottedCalls:
    kinds: list[Collective] = []
    columns: list[tuple[float, ...]] = []
    for row, units, layout, stride in rows.parts:
        for call in slotted_calls(units, layout, wire):
            kinds.append(call.kind)
            ranks = layout.shard if call.across_replicas else call.ranks
            place = (row, _SLOTS.index(call.slot), call.count)
            group = (ranks, layout.replicas, stride, call.across_replicas)
            columns.append((call.total_bytes, *place, *group))
    table = np.array(columns, dtype=float).reshape(-1, 8).T
    row, slot, count, ranks, replicas, stride = table[1:7].astype(int)
    return _SlottedCalls(
        kinds=tuple(kinds),
        total_bytes=table[0],
        row=row,
        slot=slot,
        count=count,
        ranks=ranks,
        replicas=replicas,
        stride=stride,
        across=table[7] > 0,
    )


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

    DDP all-reduces buckets of gradients during the last backward, with zeros in them for what the
    loss leaves out (reducer.cpp, `mark_variable_ready_dense`); Megatron's and DeepSpeed's ZeRO-1
    and ZeRO-2 reduce-scatter them (ZeRO-2 in every micro-batch) and gather the updated parameters
    after the optimizer, or in units of layers under the next forward pass; FSDP is
    `collective_calls`, torch's ZeRO-2 is FSDP that gathers once, and its ZeRO-1 also reduces once.
    Where ranks own whole tensors all ranks reduce all gradients, and every owner broadcasts
    (InternLM, internlm/solver/optimizer/hybrid_zero_optim.py@01e7fd61).
    """
    if layout.data == 1:
        return ()
    is_fsdp = layout.zero_stage == 3 or (layout.zero_stage > 0 and wire.sharded_by_unit)
    if is_fsdp and layout.shard > 1:
        return tuple(_fsdp_calls(units, layout, wire))
    trainable = sum((unit.trainable + unit.unused) * unit.count for unit in units)
    gradients = trainable * wire.reduce
    buckets = max(1, round(gradients / wire.bucket_bytes))
    owned = layout.zero_stage == 1 and layout.shard > 1 and wire.sharded_by_tensor
    sharded = layout.zero_stage in (1, 2) and layout.shard > 1 and not owned
    kind: Collective = "reduce_scatter" if sharded else "all_reduce"
    slot: Slot = "backward_s" if layout.zero_stage == 2 else "last_backward_s"
    bare: Slot = "backward_bare_s" if layout.zero_stage == 2 else "last_backward_bare_s"
    size, ranks = gradients / buckets, layout.shard if sharded else layout.data
    calls = (
        SlottedCall(slot, kind, size, ranks, buckets),
        SlottedCall(bare, kind, size, ranks),
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
        if layout.zero_stage < 3 and (call.phase, call.kind) == ("backward", "all_gather"):
            continue  # What was gathered in forward is kept.
        across = call.kind == "all_reduce"
        for place in _places(call, layout.zero_stage):
            size = call.total_bytes
            one = SlottedCall(place, call.kind, size, layout.shard, across_replicas=across)
            counts[one] = counts.get(one, 0) + times
    return [
        SlottedCall(c.slot, c.kind, c.total_bytes, c.ranks, n, c.across_replicas)
        for c, n in counts.items()
    ]


def _places(call: Call, zero_stage: int) -> tuple[Slot, ...]:
    """Return where in the step FSDP sends a call, and where it has nothing to hide under.

    The root is gathered first and reduced last: nothing runs beside it.
    """
    if call.kind == "all_reduce":
        return ("last_backward_s",)
    alone, once = call.unit is None, zero_stage == 1
    if call.kind == "all_gather" and once:
        return ("after_s",) if alone else ("first_forward_s",)
    if call.kind == "all_gather":
        slot: Slot = "forward_s" if call.phase == "forward" else "backward_s"
        return (slot, "forward_bare_s") if alone else (slot,)
    slot = "last_backward_s" if once else "backward_s"
    bare: Slot = "last_backward_bare_s" if once else "backward_bare_s"
    return (slot, bare) if alone else (slot,)
