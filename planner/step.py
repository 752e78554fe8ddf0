"""One optimizer step of a data-parallel job: compute, exposed communication, optimizer.

Overlap: communication C hides under compute W that covers it, but neither perfectly nor for free,

    exposed = (C^6 + (wW)^6)^(1/6) - wW + k·min(C, wW)

with w the share of compute that can hide communication and k the slowdown while both run (they
compete for SMs and memory bandwidth).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from ..profiles.curves import DeviceCurves
from ..profiles.profile import Profile
from .collectives import Collective, Group, collective_s
from .compute import MicroBatchTimes
from .fsdp import Unit, collective_calls
from .layout import Layout
from .memory import DDP_BUCKET_BYTES
from .site import Site
from .stack import StackFacts

Array = np.ndarray

HIDING_SHARE = 0.77
"""w: share of compute that hides communication (fitted, llm-foundry and InternEvo)."""
HIDING_COST_FSDP = 0.28
"""k for FSDP: gathers and reduce-scatters run on SMs all through the step (fitted)."""
HIDING_COST_BUCKETS = 0.58
"""k for bucketed gradient reduction in backward (fitted, ZeRO-1 rows)."""
HIDING_SHARPNESS = 6


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one optimizer step by part, [B] over micro-batch sizes."""

    compute_s: Array
    memory_bound_s: Array
    launch_s: Array
    optimizer_s: Array
    data_comm_exposed_s: Array

    @property
    def total_s(self) -> Array:
        """[B] the whole step."""
        return (
            self.compute_s
            + self.memory_bound_s
            + self.launch_s
            + self.optimizer_s
            + self.data_comm_exposed_s
        )


@dataclass(frozen=True, kw_only=True)
class Bytes:
    """Bytes per parameter on the wire."""

    gather: int
    """FSDP's all-gather, in the compute dtype."""
    reduce: int
    """Gradient reduction."""
    refresh: int
    """All-gather of updated parameters under ZeRO-1 and ZeRO-2."""


def step_times(
    times: MicroBatchTimes,
    traffic: Traffic,
    *,
    optimizer_s: float,
    step_overhead_s: float,
    grad_accum: Array,
) -> StepTimes:
    """Return the parts of one optimizer step on every rank, seconds.

    Args:
        times: kernels of one micro-batch, [V].
        traffic: collectives of the data dimension (`data_traffic`).
        optimizer_s: the optimizer step.
        step_overhead_s: host work once a step.
        grad_accum: [V] micro-batches per step.
    """
    compute = grad_accum * times.compute_s
    memory = grad_accum * times.memory_bound_s
    busy = grad_accum * (times.forward_s + times.backward_s)
    return StepTimes(
        compute_s=compute,
        memory_bound_s=memory,
        launch_s=busy - compute - memory + step_overhead_s,
        optimizer_s=np.full_like(busy, optimizer_s),
        data_comm_exposed_s=traffic.exposed_s(times.forward_s, times.backward_s, grad_accum),
    )


def optimizer_s(profile: Profile, layout: Layout, curves: DeviceCurves, stack: StackFacts) -> float:
    """Return seconds of the optimizer step on one rank: its bytes, or its launches if longer.

    ZeRO of any stage steps only the rank's own shard.
    """
    facts = profile.optimizer
    local = profile.trainable_parameters / (layout.shard if layout.zero_stage else 1)
    moved = np.array([local * facts.step_bytes_per_parameter])
    device = float(curves.memory_bound_s(moved, kind="optimizer", dtype="fp32")[0])
    return max(device, facts.launches * stack.optimizer_launch_s)


def exposed_s(communication: ArrayLike, cover: Array, hiding_cost: float) -> Array:
    """Return seconds by which communication lengthens the compute that covers it."""
    communication = np.asarray(communication)
    p = HIDING_SHARPNESS
    hidden_under = HIDING_SHARE * cover
    # Scaled by the larger of the two, so that the powers neither overflow nor vanish.
    scale = np.maximum(np.maximum(communication, hidden_under), 1e-12)
    smooth = scale * ((communication / scale) ** p + (hidden_under / scale) ** p) ** (1 / p)
    return smooth - hidden_under + hiding_cost * np.minimum(communication, hidden_under)


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Seconds of the data dimension's collectives, were nothing overlapped.

    `forward_s` and `backward_s` run in every micro-batch, `last_backward_s` only in the last one,
    `after_s` after the optimizer. Of each, `*_bare_s` has no compute to hide under: the first
    gather, and the last bucket or reduce-scatter.
    """

    forward_s: float = 0.0
    forward_bare_s: float = 0.0
    backward_s: float = 0.0
    backward_bare_s: float = 0.0
    last_backward_s: float = 0.0
    last_backward_bare_s: float = 0.0
    after_s: float = 0.0
    hiding_cost: float = HIDING_COST_BUCKETS

    def exposed_s(self, forward_s: Array, backward_s: Array, grad_accum: Array) -> Array:
        """Return [V] seconds by which the collectives lengthen one step."""
        if self == Traffic():
            return np.zeros_like(forward_s)
        once = self._over(self.forward_s, self.forward_bare_s, forward_s)
        each = self._over(self.backward_s, self.backward_bare_s, backward_s)
        last = self._over(
            self.backward_s + self.last_backward_s,
            self.backward_bare_s + self.last_backward_bare_s,
            backward_s,
        )
        return grad_accum * once + (grad_accum - 1) * each + last + self.after_s

    def _over(self, communication_s: float, bare_s: float, cover_s: Array) -> Array:
        if not communication_s:
            return np.zeros_like(cover_s)
        return exposed_s(communication_s - bare_s, cover_s, self.hiding_cost) + bare_s


def data_traffic(
    units: Sequence[Unit], layout: Layout, site: Site, curves: DeviceCurves, wire: Bytes
) -> Traffic:
    """Return the collectives of the data dimension under a layout.

    Args:
        units: FSDP units of the model.
        layout: ZeRO stage and degrees.
        site: nodes and links.
        curves: measured rates inside a node.
        wire: bytes per parameter of each collective.
    """
    if layout.data == 1:
        return Traffic()
    if layout.zero_stage == 3 and layout.shard > 1:
        return _fsdp_traffic(units, layout, site, curves, wire)
    trainable = sum(unit.trainable * unit.count for unit in units)
    group = Group.of_data(layout, site)
    gradients = trainable * wire.reduce
    buckets = max(1, round(gradients / DDP_BUCKET_BYTES))
    kind: Collective = "reduce_scatter" if layout.zero_stage else "all_reduce"
    bucket_s = collective_s(kind, gradients / buckets, group, site, curves)
    reduce_s = buckets * bucket_s
    if layout.zero_stage == 0:
        return Traffic(last_backward_s=reduce_s, last_backward_bare_s=bucket_s)
    refresh_s = collective_s("all_gather", trainable * wire.refresh, group, site, curves)
    if layout.zero_stage == 1:
        return Traffic(last_backward_s=reduce_s, last_backward_bare_s=bucket_s, after_s=refresh_s)
    return Traffic(backward_s=reduce_s, backward_bare_s=bucket_s, after_s=refresh_s)


def _fsdp_traffic(
    units: Sequence[Unit], layout: Layout, site: Site, curves: DeviceCurves, wire: Bytes
) -> Traffic:
    """Return the collectives of FSDP and HSDP, as `collective_calls` lists them.

    HSDP all-reduces the shards over the replicas once a step, in the last backward.
    """
    groups = {
        "all_gather": Group.of_shard(layout, site),
        "reduce_scatter": Group.of_shard(layout, site),
        "all_reduce": Group.of_replicas(layout, site),
    }
    calls = collective_calls(
        units, shard=layout.shard, replicas=layout.replicas, gather_bytes=wire.gather
    )
    seconds: dict[tuple[str, str], float] = {}
    first = last = 0.0
    cost = lru_cache(lambda kind, size: collective_s(kind, size, groups[kind], site, curves))
    for call in calls:
        one = cost(call.kind, call.total_bytes)
        key = (call.phase, call.kind)
        seconds[key] = seconds.get(key, 0.0) + one
        if call.unit is None and call.kind == "all_gather":
            first = one
        if call.unit is None and call.kind == "reduce_scatter":
            last = one
    regather = seconds.get(("backward", "all_gather"), 0.0)
    reduce = seconds.get(("backward", "reduce_scatter"), 0.0)
    return Traffic(
        forward_s=seconds[("forward", "all_gather")],
        forward_bare_s=first,
        backward_s=regather + reduce,
        backward_bare_s=last,
        last_backward_s=seconds.get(("backward", "all_reduce"), 0.0),
        hiding_cost=HIDING_COST_FSDP,
    )
