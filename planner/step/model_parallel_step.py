"""The step of a layout that splits the model: tensor, pipeline, context and expert dimensions.

Ranks are numbered tensor first, then context, data and pipeline, as Megatron does: tensor ranks
are neighbours on the fast link, stages lie farthest apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..hardware.collectives import Links
from ..parallelism.fsdp import Unit
from ..parallelism.pipeline_stages import stage_counts, stage_of_instances
from ..parallelism.rank_parameters import RankUnits, data_layout, expert_data_layout
from ..parallelism.rank_trace import SplitTrace
from ..plan.layout import Layout
from ..software.dispatch import Dispatch
from .collective_copies import copied_s
from .data_parallel_comm import Traffic, TrafficRows, exposed_s, straggling, traffic_of
from .data_parallel_step import StepTimes, step_times
from .exchange_times import exchange_s
from .expert_exchange import expert_share
from .kernels.kernel_totals import MicroBatchTimes, SegmentTimes
from .pipeline_bubble import bubble_s
from .slotted_calls import WireBytes

Array = np.ndarray

SECONDS = (
    "forward_s",
    "backward_s",
    "compute_s",
    "memory_s",
    "tensor_comm_s",
    "context_comm_s",
    "expert_comm_s",
)
"""What is known of a micro-batch on one stage, in the order of `SlowestStages.seconds`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StageCounts:
    """How often stages run each segment of a trace; no device changes it."""

    stages: Array
    """[K pipelines, D, S] of the stages that differ, the first of equal ones; filled up with the
    first stage."""
    every: Array
    """[S] all stages of a pipeline together."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SlowestStages:
    """One micro-batch on the slowest stage of pipelines, [K, B], and what it waits for."""

    seconds: dict[str, Array]
    """By the names of `SECONDS`."""
    others_s: Array
    """All other stages together."""

    def micro_batch(self) -> MicroBatchTimes:
        """Return the kernels' times."""
        return MicroBatchTimes(
            forward_s=self.seconds["forward_s"],
            backward_s=self.seconds["backward_s"],
            compute_s=self.seconds["compute_s"],
            memory_bound_s=self.seconds["memory_s"],
        )

    def communication(self) -> dict[str, Array]:
        """Return what it exchanges, by breakdown key."""
        return {name: self.seconds[name] for name in SECONDS if name.endswith("_comm_s")}


@lru_cache(maxsize=1024)
def stage_counts_of(
    shares: tuple[SplitTrace, ...], pipelines: tuple[tuple[int, int], ...]
) -> list[StageCounts]:
    """Return the counts of each trace; stages are equal where they are under every one.

    Args:
        shares: one split under several recompute policies.
        pipelines: (pipeline, virtual stages), [K].
    """
    widths = [len(share.trace.segments) for share in shares]
    found = []
    for pipeline, virtual in pipelines:
        layout = Layout(pipeline=pipeline, virtual_stages=virtual)
        counts = [
            stage_counts(one.trace, stage_of_instances(one.trace, layout), pipeline)
            for one in shares
        ]
        found.append(list(dict.fromkeys(map(tuple, np.concatenate(counts, axis=1).tolist()))))
    most = max(len(rows) for rows in found)
    stages = np.array([rows + rows[:1] * (most - len(rows)) for rows in found])
    parts = np.split(stages, np.cumsum(widths)[:-1], axis=2)
    return [
        StageCounts(stages=part, every=np.bincount(share.trace.schedule, minlength=width) * 1.0)
        for part, share, width in zip(parts, shares, widths, strict=True)
    ]


def slowest_stages(
    counts: Sequence[StageCounts], seconds: Sequence[Array], shares: Sequence[float]
) -> SlowestStages:
    """Return the slowest stage of each pipeline; of equally slow ones the first.

    Args:
        counts: of each traced recompute policy.
        seconds: [7, S, B] of its segments (`segment_seconds`).
        shares: of the policies, which add up to one.
    """
    stages, every = 0.0, 0.0
    for one, table, share in zip(counts, seconds, shares, strict=True):
        pipelines, differing, width = one.stages.shape
        flat = one.stages.reshape(-1, width) @ table
        stages = stages + share * flat.reshape(len(SECONDS), pipelines, differing, -1)
        every = every + share * (one.every @ (table[0] + table[1]))
    stages = np.asarray(stages)
    total = stages[0] + stages[1]
    slowest = total.argmax(axis=1)
    taken = np.take_along_axis(stages, slowest[None, :, None, :], axis=2)[:, :, 0]
    return SlowestStages(
        seconds=dict(zip(SECONDS, taken, strict=True)),
        others_s=np.maximum(every - (taken[0] + taken[1]), 0.0),
    )


def segment_seconds(
    times: SegmentTimes,
    split: SplitTrace,
    layout: Layout,
    links: Links,
    *,
    micro_batches: Array,
    tensor_exposure: float,
    dispatch: Dispatch,
    copy_step: float,
) -> Array:
    """Return [7, S, B] seconds of `SECONDS` in every segment, exchanges included.

    Args:
        times: kernels of a rank's share, by segment.
        split: that share, with what it exchanges.
        layout: its groups; data and pipeline do not matter.
        links: what they talk over.
        micro_batches: [B] sizes.
        tensor_exposure: share of tensor-parallel collectives that is not hidden.
        dispatch: how tokens go to their experts.
        copy_step: time of a copy in a step relative to one alone.
    """
    constants = links.constants
    copies_s = copy_step * copied_s(split, links.curves, micro_batches)
    comm = exchange_s(
        split,
        layout,
        links,
        micro_batches,
        sends_once=dispatch.sends_once,
        expert_tensor=layout.tensor if dispatch.splits_experts else 1,
    )
    exposed = {
        # What experts' products need, and what they made, is not cut up to run beside them.
        "tensor": tensor_exposure * comm["tensor"] + comm["expert_tensor"],
        "context": exposed_s(
            comm["context"],
            np.zeros_like(times.compute_s),
            times.compute_s,
            share=constants["hiding_share"],
            cost=np.array(constants["hiding_cost.fsdp"]),
        )
        * (comm["context"] > 0),
        "expert": expert_share(comm["expert"], times, dispatch, constants) * comm["expert"],
    }
    total = times.total_s + copies_s + sum(exposed.values())
    forward = np.array([[phase == "forward"] for phase in times.phase])
    backward = np.array([[phase in ("recompute", "backward")] for phase in times.phase])
    parts = (
        forward * total,
        backward * total,
        times.compute_s,
        times.memory_s + copies_s,
        exposed["tensor"],
        exposed["context"],
        exposed["expert"],
    )
    return np.stack(parts)


def hybrid_rows(rows: Sequence[tuple[RankUnits, Layout]]) -> TrafficRows:
    """Return the data dimensions of layouts; experts' gradients have ranks of their own."""
    parts: list[tuple[int, tuple[Unit, ...], Layout, int]] = []
    for row, (units, layout) in enumerate(rows):
        parts.append((row, units.dense, data_layout(layout), layout.tensor))
        if units.experts:
            experts = (*units.experts, _EMPTY_ROOT)
            split = units.expert_tensor
            held = expert_data_layout(layout, split)
            parts.append((row, experts, held, layout.expert * split))
    return TrafficRows(parts=tuple(parts), rows=len(rows))


def hybrid_traffic(
    rows: TrafficRows, accelerators: Array, links: Links, wire: WireBytes
) -> Traffic:
    """Return the collectives of the data dimension of each row.

    Args:
        rows: [R] of `hybrid_rows`.
        accelerators: [R, 1] of the layouts: the slowest of all is waited for.
        links: what the ranks talk over.
        wire: bytes per parameter.
    """
    found = traffic_of(rows, links, wire)
    return replace(found, straggling=straggling(accelerators, links.constants))


_EMPTY_ROOT = Unit(name=None, count=1, parameters=0, trainable=0, tensors=())


@lru_cache(maxsize=1024)
def boundary_bytes(split: SplitTrace) -> float:
    """Return bytes per sample of the residual stream between two blocks, whole."""
    for segment in split.trace.segments:
        if segment.phase == "forward" and segment.block is not None:
            last = segment.kernels[-1]
            return last.bytes_written.per_sample
    return 0.0


def pipeline_s(
    others_s: Array,
    send: Array,
    *,
    pipeline: Array,
    virtual_stages: Array,
    grad_accum: Array,
    passes: int,
) -> Array:
    """Return seconds a step waits for other stages: the bubble, and sends between them.

    Args:
        others_s: one micro-batch on all stages but the slowest.
        send: of one micro-batch (`pipeline_sends.send_s`).
        pipeline: stages; with one alone nothing is waited for.
        virtual_stages: chunks of a stage.
        grad_accum: micro-batches a step.
        passes: how often a step fills and drains the pipeline.
    """
    sends = send * (grad_accum + passes * (pipeline - 1) / virtual_stages)
    waits = passes * bubble_s(others_s, virtual_stages)
    return np.where(pipeline > 1, waits + sends, 0.0)


def hybrid_step_times(
    slowest: MicroBatchTimes,
    traffic: Traffic,
    communication: dict[str, Array],
    *,
    pipeline_s: Array,
    optimizer_s: Array,
    step_overhead_s: float,
    grad_accum: Array,
    accumulation_s: Array,
    covering: Array,
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
        covering: passes of a micro-batch that collectives of once a step can hide under.
    """
    parts = step_times(
        slowest,
        traffic,
        optimizer_s=optimizer_s,
        step_overhead_s=step_overhead_s,
        grad_accum=grad_accum,
        accumulation_s=accumulation_s,
        covering=covering,
    )
    exchanged = {name: grad_accum * seconds for name, seconds in communication.items()}
    return replace(
        parts,
        launch_s=parts.launch_s - sum(exchanged.values()),
        pipeline_bubble_s=pipeline_s + np.zeros_like(parts.launch_s),
        **exchanged,
    )
