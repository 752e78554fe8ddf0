"""The step of a layout that splits the model: tensor, pipeline, context and expert dimensions.

Ranks are numbered tensor first, then context, data and pipeline, as Megatron does: tensor ranks
are neighbours on the fast link, stages lie farthest apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ...profiles.profile import Segment
from ..constants import Constants
from ..hardware.cluster import Site
from ..hardware.collectives import CallTable, CollectiveCall, Group, Links, collective_s
from ..parallelism.column_row_parallel import is_expert_product
from ..parallelism.fsdp import Unit
from ..parallelism.pipeline_stages import stage_counts, stage_of_instances
from ..parallelism.rank_parameters import RankUnits, data_layout, expert_data_layout
from ..parallelism.rank_trace import Exchange, SplitTrace
from ..plan.layout import Layout
from .data_parallel_comm import Traffic, WireBytes, data_traffic, exposed_s, straggling
from .data_parallel_step import StepTimes, step_times
from .kernel_totals import MicroBatchTimes, SegmentTimes
from .pipeline_bubble import bubble_s

Array = np.ndarray

SEND_LATENCY_S = 10e-6


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one micro-batch on each stage, [stages, B]."""

    forward_s: Array
    backward_s: Array
    compute_s: Array
    memory_s: Array
    tensor_comm_s: Array
    context_comm_s: Array
    expert_comm_s: Array

    @property
    def total_s(self) -> Array:
        """[stages, B] both passes."""
        return self.forward_s + self.backward_s

    @staticmethod
    def weighted(parts: Sequence[StageTimes], shares: Sequence[float]) -> StageTimes:
        """Return the mean of several results of equal shape, by their shares."""
        weights = np.array(shares)[:, None, None]

        def mean(name: str) -> Array:
            return (weights * np.array([getattr(part, name) for part in parts])).sum(axis=0)

        return StageTimes(**{one.name: mean(one.name) for one in fields(StageTimes)})

    def slowest(self) -> tuple[MicroBatchTimes, dict[str, Array]]:
        """Return the slowest stage's micro-batch [B], and its communication by breakdown key."""
        index = self.total_s[:, 0].argmax()
        return (
            MicroBatchTimes(
                forward_s=self.forward_s[index],
                backward_s=self.backward_s[index],
                compute_s=self.compute_s[index],
                memory_bound_s=self.memory_s[index],
            ),
            {
                name: getattr(self, name)[index]
                for name in ("tensor_comm_s", "context_comm_s", "expert_comm_s")
            },
        )


def stage_times(
    times: SegmentTimes,
    split: SplitTrace,
    layout: Layout,
    links: Links,
    *,
    micro_batches: Array,
    tensor_exposure: float,
) -> StageTimes:
    """Return one micro-batch on every stage, communication between its kernels included.

    Args:
        times: kernels of a rank's share, by segment.
        split: that share, with what it exchanges.
        layout: stages and groups.
        links: what they talk over.
        micro_batches: [B] sizes.
        tensor_exposure: share of tensor-parallel collectives that is not hidden.
    """
    trace = split.trace
    counts = stage_counts(trace, stage_of_instances(trace, layout), layout.pipeline)
    comm = exchange_s(split, layout, links, micro_batches)
    attention_s, constants = times.compute_s, links.constants
    exposed = {
        "tensor": tensor_exposure * comm["tensor"],
        "context": exposed_s(
            comm["context"],
            np.zeros_like(attention_s),
            attention_s,
            share=constants["hiding_share"],
            cost=np.array(constants["hiding_cost.fsdp"]),
        )
        * (comm["context"] > 0),
        "expert": constants["expert_exposure"] * comm["expert"],
    }
    slowdown = np.array([[_expert_slowdown(one, constants)] for one in trace.segments])
    total = times.total_s * slowdown + sum(exposed.values())
    forward = np.array([phase == "forward" for phase in times.phase])
    backward = np.array([phase in ("recompute", "backward") for phase in times.phase])
    return StageTimes(
        forward_s=(counts * forward) @ total,
        backward_s=(counts * backward) @ total,
        compute_s=counts @ (times.compute_s * slowdown),
        memory_s=counts @ (times.memory_s * slowdown),
        tensor_comm_s=counts @ exposed["tensor"],
        context_comm_s=counts @ exposed["context"],
        expert_comm_s=counts @ exposed["expert"],
    )


def _expert_slowdown(segment: Segment, constants: Constants) -> float:
    return constants["expert_slowdown"] if any(map(is_expert_product, segment.kernels)) else 1.0


def exchange_s(
    split: SplitTrace, layout: Layout, links: Links, micro_batches: Array
) -> dict[str, Array]:
    """Return [segments, B] seconds of each dimension's collectives, were nothing overlapped."""
    seconds = {
        among: np.zeros((len(split.exchanges), len(micro_batches)))
        for among in ("tensor", "context", "expert")
    }
    places: list[tuple[str, int, int, int]] = []
    calls: list[CollectiveCall] = []
    for row, exchanges in enumerate(split.exchanges):
        for one in exchanges:
            for column, size in enumerate(micro_batches):
                calls.append(_call(one, layout, links.site, float(size)))
                places.append((one.among, row, column, one.count))
    if calls:
        for (among, row, column, count), one_s in zip(
            places, collective_s(CallTable(calls), links), strict=True
        ):
            seconds[among][row, column] += count * one_s
    return seconds


def _call(one: Exchange, layout: Layout, site: Site, micro_batch: float) -> CollectiveCall:
    """Return an exchange as it is asked of the links."""
    group = {
        "tensor": Group.packed(layout.tensor, site.domain),
        "context": Group.packed(layout.context, site.domain, stride=layout.tensor),
        "expert": Group.packed(layout.expert, site.domain),
    }[one.among]
    size = one.total_bytes.at(micro_batch)
    if group.nodes > 1:
        size *= distinct_share(one.copies, group.nodes)
    return CollectiveCall(kind=one.kind, total_bytes=size, group=group)


def distinct_share(copies: float, nodes: int) -> float:
    """Return distinct nodes ÷ copies of a token that goes to this many experts at random.

    A token crosses to a node once and is copied there (DeepSeek-V3, arXiv:2412.19437, section
    3.2.2).
    """
    return nodes * (1 - (1 - 1 / nodes) ** copies) / copies


def hybrid_traffic(units: RankUnits, layout: Layout, links: Links, wire: WireBytes) -> Traffic:
    """Return the collectives of the data dimension; experts' gradients have ranks of their own."""
    dense = data_traffic(units.dense, [data_layout(layout)], links, wire, stride=layout.tensor)
    dense = replace(dense, straggling=np.array([[straggling(layout, links.constants)]]))
    if not units.experts:
        return dense
    of_experts = data_traffic(
        (*units.experts, _EMPTY_ROOT),
        [expert_data_layout(layout)],
        links,
        wire,
        stride=layout.expert,
    )
    together = {
        one.name: getattr(dense, one.name) + getattr(of_experts, one.name)
        for one in fields(Traffic)
        if one.name.endswith("_s")
    }
    return replace(dense, **together)


_EMPTY_ROOT = Unit(name=None, count=1, parameters=0, trainable=0, tensors=())


def boundary_bytes(split: SplitTrace) -> float:
    """Return bytes per sample of the residual stream between two blocks, whole."""
    for segment in split.trace.segments:
        if segment.phase == "forward" and segment.block is not None:
            last = segment.kernels[-1]
            return last.bytes_written.per_sample
    return 0.0


def send_s(layout: Layout, links: Links, activation_bytes: float) -> float:
    """Return seconds that one micro-batch's transfers between stages take a stage.

    Args:
        layout: pipeline and the dimensions inside a stage.
        links: between stages it is the fast one only where a whole pipeline lies on it.
        activation_bytes: what a rank sends on.
    """
    if layout.pipeline == 1:
        return 0.0
    site = links.site
    if layout.accelerators <= site.domain:
        rate = site.intra_link.bytes_per_s
    else:
        line = site.domain_bytes_per_s
        rate = None if line is None else line / site.domain
    transfer = 0.0 if not rate else activation_bytes / rate
    return 2 * (SEND_LATENCY_S + transfer + links.constants["send_host_s"])


def pipeline_s(stages: StageTimes, send: float, layout: Layout, grad_accum: int) -> float:
    """Return seconds a step waits for other stages: the bubble, and sends between them."""
    waiting = bubble_s(stages.total_s, layout.virtual_stages).item()
    if layout.pipeline == 1:
        return 0.0
    return waiting + send * (grad_accum + (layout.pipeline - 1) / layout.virtual_stages)


def hybrid_step_times(
    slowest: MicroBatchTimes,
    traffic: Traffic,
    communication: dict[str, Array],
    *,
    pipeline_s: float,
    optimizer_s: Array,
    step_overhead_s: float,
    grad_accum: Array,
    accumulation_s: float,
) -> StepTimes:
    """Return the parts of one optimizer step: the slowest stage's, and what it waits for.

    Args:
        slowest: one micro-batch of the slowest stage, communication included.
        traffic: collectives of the data dimension.
        communication: the stage's own collectives in one micro-batch, by breakdown key.
        pipeline_s: waiting for other stages.
        optimizer_s: the optimizer step.
        step_overhead_s: host work once a step.
        grad_accum: micro-batches per step.
        accumulation_s: adding the gradients of a further micro-batch to those before it.
    """
    parts = step_times(
        slowest,
        traffic,
        optimizer_s=optimizer_s,
        step_overhead_s=step_overhead_s,
        grad_accum=grad_accum,
        accumulation_s=accumulation_s,
    )
    exchanged = {name: grad_accum * seconds for name, seconds in communication.items()}
    return replace(
        parts,
        launch_s=parts.launch_s - sum(exchanged.values()),
        pipeline_bubble_s=pipeline_s + np.zeros_like(parts.launch_s),
        **exchanged,
    )
