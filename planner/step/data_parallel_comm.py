"""The data dimension's collectives of one step, and how much of them compute hides.

Communication C hides under compute W that covers it, but neither perfectly nor for free,

    exposed = (C^6 + (wW)^6)^(1/6) - wW + k·min(C, wW)

with w the share of compute that can hide communication (`hiding_share`) and k the slowdown while
both run (`hiding_cost`: they compete for SMs and memory bandwidth).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from ...catalog.vocabulary import Collective
from ..constants import Constants
from ..hardware.collectives import CallTable, Groups, Links, collective_s
from ..parallelism.fsdp import Unit
from ..plan.layout import Layout
from .slotted_calls import WireBytes, slotted_calls

Array = np.ndarray

HIDING_SHARPNESS = 6


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
