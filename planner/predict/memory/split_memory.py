"""Memory peaks of many layouts that split the model, at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...memory.stages.memory import checked_stages
from ...memory.stages.shapes import stage_shapes
from ...memory.stages.split_peaks import Shards, peak_bytes
from ...memory.stages.stream import streams_of
from ...memory.stages.tables import Stages
from ...memory.stages.whole import gradient_share
from ...parallelism.legal_layouts import Shape
from ...parallelism.pipeline_stages import in_flight
from ...parallelism.rank_parameters import expert_data_layout
from ...plan.layout import Layout
from ...plan.setup import Setup
from ...software.deepspeed_engine import (
    engine_bytes,
    received_bytes,
    runs_deepspeed,
    sums_in_fp32,
)
from ...step.model_parallel_step import boundary_bytes
from ..fullest_rank import units_by_stage
from ..kept.model_cache import ModelCache
from .cached_weights import cached_bytes
from .peak_memory import gathered_width, memory_share, state_of


def accumulations(pipeline: int, virtual_stages: int) -> tuple[int, int]:
    """Return two numbers of micro-batches, which stand for all that a pipeline is searched with.

    Without stages one micro-batch and several differ. With stages there are as many as stages or
    more, of interleaved ones a multiple: then only whether it is one group or several matters
    (`in_flight`).
    """
    return (1, 2) if pipeline == 1 else (pipeline, 2 * pipeline)


def shards_of(layout: Layout) -> Shards:
    """Return the data dimension of a layout as memory sees it."""
    ranks, over = layout.data * layout.context, expert_data_layout(layout)
    return Shards(shard=layout.shard, ranks=ranks, expert_shard=over.shard)


def stages_of(
    cache: ModelCache,
    setup: Setup,
    pipelines: Sequence[tuple[int, int]],
    micro_batches: np.ndarray,
) -> tuple[Stages, np.ndarray]:
    """Return the stages of pipelines that can be the fullest, and which pipeline each is of.

    Args:
        cache: the model.
        setup: precision, software, recompute policy, and tensor, context and expert degrees.
        pipelines: (pipeline, virtual stages), [K].
        micro_batches: [B] sizes.

    Raises:
        UnsupportedError: the model cannot be split that way.
    """
    share = memory_share(cache, setup)
    streams = streams_of(share, setup.layout.context)
    made = stage_shapes(streams, share.trace, micro_batches)
    shapes, units, flights, accumulates, owners = [], [], [], [], []
    whole: list[list[float]] = []
    staged: list[bool] = []
    for k, (pipeline, virtual) in enumerate(pipelines):
        shape = Shape.of(setup.layout)._replace(pipeline=pipeline, virtual_stages=virtual)
        layout = shape.smallest()
        held = units_by_stage(cache, replace(setup, layout=layout))
        counts = accumulations(pipeline, virtual)
        for stage in checked_stages(layout):
            shapes.append(made.of(pipeline, virtual, stage))
            units.append(held[stage])
            flights.append([in_flight(stage, layout, count) for count in counts])
            accumulates.append([count > 1 for count in counts])
            whole.append([gradient_share(held[stage], layout, count) for count in counts])
            staged.append(pipeline > 1)
            owners.append(k)
    in_flights = np.array(flights).T
    stages = Stages(
        profile=cache.profile,
        moments_in_order=streams.storages.moments,
        shapes=shapes,
        units=units,
        in_flight=in_flights,
        accumulates=np.array(accumulates).T,
        is_staged=np.array(staged),
        gradient_share=np.array(whole).T,
        received=received_bytes(boundary_bytes(share) * micro_batches, in_flights[:, :, None]),
    )
    return stages, np.array(owners)


def split_peaks(
    cache: ModelCache,
    setup: Setup,
    stages: Stages,
    owners: np.ndarray,
    zero_stage: int,
    shards: Sequence[Shards],
) -> np.ndarray:
    """Return [A, Z, K, B] allocated bytes at the peak of the fullest stage of each pipeline.

    Args:
        cache: the model.
        setup: precision, software, and tensor, context and expert degrees.
        stages: of pipelines [K] (`stages_of`), with
        owners: which pipeline each is of.
        zero_stage: of the data dimensions.
        shards: [Z] all of one rank, or all of more.
    """
    numerics = cache.numerics(setup.precision, autocast=setup.autocast)
    layouts = [_data_layout(setup.layout, zero_stage, one) for one in shards]
    setup = replace(setup, layout=layouts[0])
    found = peak_bytes(
        stages,
        zero_stage,
        shards,
        compute_bytes=gathered_width(cache, setup),
        state=state_of(setup, numerics, cache.profile),
    )
    if runs_deepspeed(setup.stack, setup.software_date, setup.features, setup.layout):
        found = found + _engine_bytes(cache, setup, stages, layouts)
    found = found + np.array([cached_bytes(setup, one) for one in stages.units])[:, None]
    first = np.flatnonzero(np.diff(owners, prepend=-1))
    return np.maximum.reduceat(found, first, axis=2)


def _data_layout(split: Layout, zero_stage: int, shards: Shards) -> Layout:
    """Return a split with another data dimension."""
    data = shards.ranks // split.context
    return replace(split, data=data, shard=shards.shard, zero_stage=zero_stage)


def _engine_bytes(
    cache: ModelCache, setup: Setup, stages: Stages, layouts: Sequence[Layout]
) -> np.ndarray:
    """Return [A, Z, K, B] bytes that DeepSpeed's engine and its pipeline hold in every stage."""
    in_fp32 = sums_in_fp32(setup.stack, setup.precision)
    buffers = [
        [
            engine_bytes(cache.profile, layout, in_fp32=in_fp32, trainable=one.trainable)
            for one in stages.units
        ]
        for layout in layouts
    ]
    return np.array(buffers)[None, :, :, None] + stages.received[:, None]
