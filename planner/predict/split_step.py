"""The step of many layouts that split the model at once; one setup is the same with arrays of one.

What no data degree changes, the slowest stage of a micro-batch, is known by pipeline and
micro-batch; collectives of the data dimension by row of a table. A candidate is a choice of both,
and everything else is arithmetic over arrays of candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...catalog.types import Accelerator
from ...catalog.vocabulary import Recompute
from ..hardware.cluster import Site
from ..offload.host_copies import host_work
from ..parallelism.rank_trace import SplitTrace
from ..plan.layout import Layout
from ..plan.setup import Setup
from ..software.dispatch import dispatch_of
from ..software.kernel_levels import in_step
from ..software.versions import tensor_exposure
from ..step.data_parallel_comm import Traffic
from ..step.data_parallel_step import StepTimes, optimizer_step_s
from ..step.kernels.kernel_totals import MicroBatchTimes, SegmentTimes
from ..step.model_parallel_step import (
    SlowestStages,
    hybrid_step_times,
    pipeline_s,
    segment_seconds,
    slowest_stages,
    stage_counts_of,
)
from ..step.pipeline_bubble import covering_passes
from ..step.pipeline_sends import send_s
from .kept.model_cache import ModelCache
from .setup import accumulation_bytes, recompute_policies, split_of, stack_facts


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """What the step times of candidates follow from: arrays of one shape."""

    micro_batch: MicroBatchTimes
    """Kernels of the slowest stage."""
    communication: dict[str, np.ndarray]
    """What that stage exchanges, by breakdown key."""
    others_s: np.ndarray
    """The other stages together."""
    boundary_bytes: np.ndarray
    """What a rank holds of the activation that goes to the next stage."""
    sent_parts: np.ndarray
    """Among how many tensor ranks that is scattered (`versions.sent_parts`)."""
    on_fast_link: np.ndarray
    pipeline: np.ndarray
    virtual_stages: np.ndarray
    traffic: Traffic
    stepped: np.ndarray
    """Trainable parameters that the optimizer of the fullest rank steps."""
    accumulated: np.ndarray
    """Gradients of the fullest rank that micro-batches add to."""
    grad_accum: np.ndarray
    gathered: np.ndarray | None = None
    """Parameters of which the fullest rank keeps a shard; None where they are not offloaded."""


def split_parts(cache: ModelCache, site: Site, setup: Setup, these: Candidates) -> StepTimes:
    """Return the parts of the steps of candidates, arrays of their shape.

    Args:
        cache: the model.
        site: device and links; its node count is not looked at.
        setup: precision, software and passes of the pipeline; its layout and batch are not looked
            at.
        these: the candidates.
    """
    curves, links = cache.curves(site.accelerator), cache.links(site)
    stack = stack_facts(setup, cache.constants)
    send = send_s(
        links,
        these.boundary_bytes,
        on_fast_link=these.on_fast_link,
        parts=these.sent_parts,
    )
    added_bytes = accumulation_bytes(setup) * these.accumulated
    parts = hybrid_step_times(
        these.micro_batch,
        these.traffic,
        these.communication,
        pipeline_s=pipeline_s(
            these.others_s,
            send,
            pipeline=these.pipeline,
            virtual_stages=these.virtual_stages,
            grad_accum=these.grad_accum,
            passes=setup.pipeline_passes,
        ),
        optimizer_s=optimizer_step_s(
            these.stepped,
            cache.profile,
            curves,
            stack,
            facts=cache.steps.optimizer(setup.precision),
        ),
        step_overhead_s=stack.step_overhead_s,
        grad_accum=these.grad_accum,
        accumulation_s=curves.memory_bound_s(added_bytes, kind="optimizer"),
        covering=covering_passes(
            these.pipeline,
            these.virtual_stages,
            these.grad_accum / setup.pipeline_passes,
        ),
    )
    return _with_host(cache, site, setup, these, parts) if setup.offload else parts


def _with_host(
    cache: ModelCache, site: Site, setup: Setup, these: Candidates, parts: StepTimes
) -> StepTimes:
    """Return the parts with the work of the host, whose memory the ranks of a node share."""
    return host_work(
        cache.profile,
        setup.precision,
        setup.offload,
        site,
        cache.constants,
        stepped=these.stepped,
        gathered=np.zeros_like(these.stepped) if these.gathered is None else these.gathered,
        is_split=True,
    ).added_to(
        parts,
        forward_s=these.micro_batch.forward_s,
        backward_s=these.micro_batch.backward_s,
        grad_accum=these.grad_accum,
    )


def slowest_stages_of(
    cache: ModelCache,
    site: Site,
    setup: Setup,
    recomputes: Sequence[Recompute],
    pipelines: tuple[tuple[int, int], ...],
    micro_batches: np.ndarray,
) -> list[SlowestStages]:
    """Return one micro-batch on the slowest stage, [pipelines, B], under each recompute policy.

    Args:
        cache: the model.
        site: device and links; its node count is not looked at.
        setup: precision, software, and tensor, context and expert degrees.
        recomputes: policies.
        pipelines: (pipeline, virtual stages).
        micro_batches: [B] sizes.

    Raises:
        UnsupportedError: the model cannot be split that way.
    """
    policies = [recompute_policies(replace(setup, recompute=one)) for one in recomputes]
    traced: tuple[Recompute, ...] = tuple({name: None for one in policies for name in one})
    shares = split_shares(cache, setup, traced)
    times = _times(cache, site.accelerator, setup, traced, micro_batches)
    software = setup.stack, setup.software_date, setup.features
    exposure = tensor_exposure(*software, cache.constants)
    seconds = {
        name: segment_seconds(
            one,
            share,
            setup.layout,
            cache.links(site),
            micro_batches=micro_batches,
            tensor_exposure=exposure,
            dispatch=dispatch_of(setup.stack, setup.features),
            copy_step=_copy_step(cache, site.accelerator, setup),
        )
        for name, one, share in zip(traced, times, shares, strict=True)
    }
    counts = dict(zip(traced, stage_counts_of(shares, pipelines), strict=True))
    return [
        slowest_stages(
            [counts[name] for name in one], [seconds[name] for name in one], list(one.values())
        )
        for one in policies
    ]


def _copy_step(cache: ModelCache, accelerator: Accelerator, setup: Setup) -> float:
    """Return the time of a copy in a step relative to one alone."""
    stack = stack_facts(setup, cache.constants)
    return in_step(
        accelerator,
        "copy",
        cache.constants,
        precision=setup.precision,
        stack=stack.name,
        date=stack.date,
    )


def _times(
    cache: ModelCache,
    accelerator: Accelerator,
    setup: Setup,
    traced: tuple[Recompute, ...],
    micro_batches: np.ndarray,
) -> list[SegmentTimes]:
    """Return the kernels of a rank's share; machines that differ in their links have the same."""
    split, sizes = split_of(setup), tuple(micro_batches.tolist())
    stack = stack_facts(setup, cache.constants)
    software = (setup.stack, setup.compile, setup.autocast, setup.software_date, setup.features)
    choice = (accelerator.name, cache.curve_choice, id(cache.constants), setup.precision)
    return cache.shared(
        (
            "times",
            *choice,
            *software,
            stack.launches_serially,
            cache.fuses_loss(stack),
            traced,
            split,
            sizes,
        ),
        lambda: cache.times(
            accelerator,
            setup.precision,
            traced,
            stack=stack,
            micro_batches=micro_batches,
            split=split,
        ),
    )


def split_shares(
    cache: ModelCache, setup: Setup, traced: Sequence[Recompute]
) -> tuple[SplitTrace, ...]:
    """Return one rank's share of the step under each recompute policy that is traced.

    Raises:
        UnsupportedError: the model cannot be split that way.
    """
    stack = stack_facts(setup, cache.constants)
    numerics = cache.numerics(setup.precision, autocast=stack.autocast)
    split = split_of(setup)
    return tuple(
        cache.steps.split_in(numerics, policy, split, early_stop=stack.name != "megatron")
        for policy in traced
    )


def is_on_fast_link(layout: Layout, site: Site) -> bool:
    """Return whether all ranks of a layout lie on one domain of the fast link."""
    return layout.accelerators <= site.domain
