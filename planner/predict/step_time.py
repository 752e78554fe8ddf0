"""The parts of a setup's step: kernels, collectives, pipeline, optimizer, and their doubts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..hardware.cluster import Site
from ..offload.host_copies import host_work
from ..parallelism.rank_trace import Split, SplitTrace
from ..plan.setup import Setup
from ..software.versions import tensor_exposure
from ..step.data_parallel_comm import WireBytes, data_traffic
from ..step.data_parallel_step import (
    StepTimes,
    accumulation_s,
    optimizer_s,
    optimizer_step_s,
    step_times,
)
from ..step.kernel_totals import MicroBatchTimes, SegmentTimes
from ..step.model_parallel_step import (
    StageTimes,
    boundary_bytes,
    hybrid_step_times,
    hybrid_traffic,
    pipeline_s,
    send_s,
    stage_times,
)
from .fullest_rank import fullest_rank, stepped_parameters
from .host_work import activations_on_host, data_parallel_host_work
from .interval import step_doubts
from .model_cache import ModelCache
from .setup import accumulation_bytes, recompute_policies, stack_facts, wire_bytes


def step_parts(cache: ModelCache, site: Site, setup: Setup) -> StepTimes:
    """Return the parts of the step of one fixed setup, each of shape [1, 1]."""
    if setup.layout.is_data_parallel_only:
        return _data_parallel_parts(cache, site, setup)
    return _split_parts(cache, site, setup)


def planned_step_s(cache: ModelCache, site: Site, setup: Setup) -> float:
    """Return the predicted seconds of one step, without its interval or its memory."""
    parts = step_parts(cache, site, setup)
    optimizer_s = np.asarray(parts.optimizer_s).item() if setup.optimizer == "none" else 0.0
    return parts.total_s.item() - optimizer_s


def doubts_of(
    cache: ModelCache, site: Site, setup: Setup, parts: StepTimes, *, host_s: float = 0.0
) -> dict[str, float]:
    """Return what can be wrong with the predicted step of a setup (`step_doubts`)."""
    kinds = cache.kinds
    return step_doubts(
        parts,
        cache.curves(site.accelerator),
        dtype=setup.precision.removesuffix("-amp"),
        stack=stack_facts(setup).name,
        date=setup.software_date,
        accelerators=site.accelerators,
        nodes=site.nodes,
        has_experts="experts" in kinds,
        has_convolutions="convolution" in kinds,
        host_s=host_s,
    )


def _data_parallel_parts(cache: ModelCache, site: Site, setup: Setup) -> StepTimes:
    """Return the parts of a step whose every rank runs the whole model."""
    layouts = (setup.layout,)
    curves = cache.curves(site.accelerator)
    stack = stack_facts(setup)
    micro_batch = MicroBatchTimes.weighted(
        [one.micro_batch() for one in _kernel_times(cache, site, setup)],
        list(recompute_policies(setup).values()),
    )
    grad_accum = np.array([[setup.grad_accum]])
    parts = step_times(
        micro_batch,
        data_traffic(cache.units_in(setup.stack), layouts, site, curves, _wire(setup)),
        optimizer_s=optimizer_s(cache.profile, layouts, curves, stack),
        step_overhead_s=stack.step_overhead_s,
        grad_accum=grad_accum,
        accumulation_s=accumulation_s(cache.profile, layouts, curves, accumulation_bytes(setup)),
    )
    if not setup.offload:
        return parts
    return data_parallel_host_work(
        cache, site, setup, layouts, activation_bytes=activations_on_host(cache, setup)
    ).added_to(
        parts,
        forward_s=micro_batch.forward_s,
        backward_s=micro_batch.backward_s,
        grad_accum=grad_accum,
    )


def _split_parts(cache: ModelCache, site: Site, setup: Setup) -> StepTimes:
    """Return the parts of a step whose model is split: those of its slowest pipeline stage."""
    layout, stack = setup.layout, stack_facts(setup)
    curves = cache.curves(site.accelerator)
    shares = _shares(cache, setup)
    stages = _stages(cache, site, setup, shares)
    slowest, communication = stages.slowest()
    fullest = fullest_rank(cache, setup)
    stepped = np.array([[stepped_parameters(cache, setup)]])
    added = fullest.sharded(layout) if layout.zero_stage == 3 else fullest.trainable
    send = send_s(layout, site, boundary_bytes(shares[0]) * setup.micro_batch)
    grad_accum = np.array([[setup.grad_accum]])
    parts = hybrid_step_times(
        slowest,
        hybrid_traffic(fullest, layout, site, curves, _wire(setup)),
        communication,
        pipeline_s=pipeline_s(stages, send, layout, setup.grad_accum),
        optimizer_s=optimizer_step_s(stepped, cache.profile, curves, stack),
        step_overhead_s=stack.step_overhead_s,
        grad_accum=grad_accum,
        accumulation_s=curves.memory_bound_s(
            accumulation_bytes(setup) * added, kind="optimizer"
        ).item(),
    )
    if not setup.offload:
        return parts
    kept = fullest.sharded(layout, trainable=False) if layout.zero_stage else fullest.parameters
    return host_work(
        cache.profile,
        setup.precision,
        setup.offload,
        site,
        stepped=stepped,
        gathered=np.array([[kept]]),
    ).added_to(
        parts,
        forward_s=slowest.forward_s,
        backward_s=slowest.backward_s,
        grad_accum=grad_accum,
    )


def _shares(cache: ModelCache, setup: Setup) -> list[SplitTrace]:
    """Return one rank's share of the step under each recompute policy that is traced."""
    stack = stack_facts(setup)
    numerics = cache.numerics(setup.precision, autocast=stack.autocast)
    split = Split.of(setup.layout, setup.stack)
    return [
        cache.split_in(numerics, policy, split, early_stop=stack.name != "megatron")
        for policy in recompute_policies(setup)
    ]


def _stages(
    cache: ModelCache, site: Site, setup: Setup, shares: Sequence[SplitTrace]
) -> StageTimes:
    """Return the times of every pipeline stage, recompute policies weighted."""
    exposure = tensor_exposure(setup.stack, setup.software_date, setup.features)
    times = _kernel_times(cache, site, setup, split=Split.of(setup.layout, setup.stack))
    return StageTimes.weighted(
        [
            stage_times(
                one,
                share,
                setup.layout,
                site,
                cache.curves(site.accelerator),
                micro_batches=np.array([setup.micro_batch]),
                tensor_exposure=exposure,
            )
            for one, share in zip(times, shares, strict=True)
        ],
        list(recompute_policies(setup).values()),
    )


def _kernel_times(
    cache: ModelCache, site: Site, setup: Setup, *, split: Split | None = None
) -> Sequence[SegmentTimes]:
    """Return kernel times of one rank under each recompute policy that is traced."""
    return cache.times(
        site.accelerator,
        setup.precision,
        tuple(recompute_policies(setup)),
        stack=stack_facts(setup),
        micro_batches=np.array([setup.micro_batch]),
        split=split,
    )


def _wire(setup: Setup) -> WireBytes:
    return wire_bytes(setup.precision, setup.stack, setup.software_date, setup.features)
