"""The parts of a setup's step: kernels, collectives, pipeline, optimizer, and their doubts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...catalog.types import Accelerator
from ...catalog.vocabulary import Recompute, Stack
from ..hardware.cluster import Site
from ..offload.host_memory import steps_on_host
from ..parallelism.rank_parameters import RankUnits
from ..plan.layout import Layout
from ..plan.plan import Estimated
from ..plan.setup import Setup
from ..software.frozen_base import (
    NF4_RATE_DOUBT,
    backward_dequantisations,
    dequantisation_traffic_bytes,
)
from ..software.kept_memory import cuts_between_blocks, keeps_gradients
from ..software.stack import adds_up_shards
from ..software.versions import CHECKED_SOFTWARE, sent_parts
from ..step.data_parallel_comm import data_traffic
from ..step.data_parallel_step import (
    StepTimes,
    accumulation_s,
    optimizer_s,
    step_times,
)
from ..step.kernels.kernel_totals import MicroBatchTimes
from ..step.model_parallel_step import boundary_bytes, hybrid_rows, hybrid_traffic
from ..step.slotted_calls import WireBytes
from ..validation.folds import sources_seen
from .fullest_rank import fullest_rank, stepped_parameters
from .host_work import activations_on_host, data_parallel_host_work
from .interval import step_doubts, step_interval
from .kept.kept_steps import KeptSteps
from .kept.model_cache import ModelCache
from .setup import accumulation_bytes, recompute_policies, stack_facts, widened, wire_bytes
from .split_step import (
    Candidates,
    is_on_fast_link,
    slowest_stages_of,
    split_parts,
    split_shares,
)

SLOW_HOST = 5.0
"""Time of a slow host over that of the one that is counted: a virtual machine with an H100 took 50
to 60 us for a launch of eager torch, where 10 are fitted (docs/evidence.md)."""
HOST_CONSTANTS = ("launch_s.torch-", "recompute_host_s.")
"""Those of torch alone: clusters that run Megatron have hosts of a kind, XLA launches little."""


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Recompute policies and micro-batches of one setup on one device, [V] in all."""

    setup: Setup
    """What they share; of its layout no more is looked at than how blocks are compiled, of its
    recompute policy and batch nothing."""
    recompute: tuple[Recompute, ...]
    micro_batch: np.ndarray
    times: MicroBatchTimes
    offloaded_activation_bytes: np.ndarray
    """Activation bytes of one micro-batch that are offloaded to the host."""


def variants_of(
    cache: ModelCache,
    accelerator: Accelerator,
    setup: Setup,
    recomputes: Sequence[Recompute],
    micro_batches: np.ndarray,
) -> Variants:
    """Return every policy with every micro-batch, micro-batches varying fastest.

    Args:
        cache: the model.
        accelerator: the device.
        setup: precision, software and what is offloaded.
        recomputes: policies.
        micro_batches: sizes.
    """
    cache = cache.with_frozen(setup.frozen_precision)
    setups = [replace(setup, recompute=recompute) for recompute in recomputes]
    policies = [recompute_policies(one) for one in setups]
    traced: tuple[Recompute, ...] = tuple({policy: None for one in policies for policy in one})
    times = cache.times(
        accelerator,
        setup.precision,
        traced,
        stack=stack_facts(setup, cache.constants),
        micro_batches=micro_batches,
    )
    totals = {policy: one.micro_batch() for policy, one in zip(traced, times, strict=True)}
    weighted = [
        MicroBatchTimes.weighted([totals[name] for name in one], list(one.values()))
        for one in policies
    ]
    if setup.frozen_precision == "nf4":
        once_s = dequantisation_s(cache, accelerator)
        weighted = [
            one.longer_by(once_s, backward_dequantisations(policy) * once_s)
            for one, policy in zip(weighted, policies, strict=True)
        ]
    return Variants(
        setup=setup,
        recompute=tuple(one for one in recomputes for _ in micro_batches),
        micro_batch=np.tile(micro_batches, len(recomputes)),
        times=MicroBatchTimes.stack(weighted),
        offloaded_activation_bytes=np.concatenate(
            [activations_on_host(cache, one, micro_batches) for one in setups]
        ),
    )


def data_parallel_parts(
    cache: ModelCache,
    site: Site,
    layouts: Sequence[Layout],
    variants: Variants,
    grad_accum: np.ndarray,
) -> StepTimes:
    """Return the parts, [L, V], of steps whose every rank runs the whole model.

    Args:
        cache: the model.
        site: links, ranks per node and host.
        layouts: data-parallel ones, [L], each on as many such nodes as it needs.
        variants: what runs on one rank, [V].
        grad_accum: [L, V] micro-batches per step.
    """
    setup, times = variants.setup, variants.times
    curves = cache.curves(site.accelerator)
    stack = stack_facts(setup, cache.constants)
    parts = step_times(
        times,
        data_traffic(
            cache.steps.units_in(setup.stack),
            layouts,
            cache.links(site),
            wire_of(setup, cache.steps),
        ),
        optimizer_s=optimizer_s(
            cache.profile,
            layouts,
            curves,
            stack,
            samples=grad_accum * variants.micro_batch,
            facts=cache.steps.optimizer(setup.precision),
        ),
        step_overhead_s=stack.step_overhead_s,
        grad_accum=grad_accum,
        accumulation_s=accumulation_s(
            cache.profile, layouts, curves, accumulation_bytes(setup), stack=setup.stack
        ),
        keeps_gradients=keeps_gradients(setup),
    )
    if not setup.offload:
        return parts
    return data_parallel_host_work(
        cache, site, setup, layouts, activation_bytes=variants.offloaded_activation_bytes
    ).added_to(
        parts,
        forward_s=times.forward_s,
        backward_s=times.backward_s,
        grad_accum=grad_accum,
    )


def dequantisation_s(cache: ModelCache, accelerator: Accelerator) -> float:
    """Return seconds in which a device dequantises every 4-bit weight once: those of its bytes."""
    moved = dequantisation_traffic_bytes(cache.profile)
    return cache.curves(accelerator).memory_bound_s(moved, kind="copy").item()


def step_parts(cache: ModelCache, site: Site, setup: Setup) -> StepTimes:
    """Return the parts of the step of one fixed setup, each of shape [1, 1]."""
    if setup.layout.is_data_parallel_only:
        sizes = np.array([setup.micro_batch])
        one = variants_of(cache, site.accelerator, setup, (setup.recompute,), sizes)
        accum = np.array([[setup.grad_accum]])
        return data_parallel_parts(cache, site, (setup.layout,), one, accum)
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
    kinds, stack = cache.kinds, stack_facts(setup, cache.constants).name
    found = step_doubts(
        parts,
        cache.curves(site.accelerator),
        dtype=setup.precision.removesuffix("-amp"),
        stack=stack,
        date=setup.software_date,
        accelerators=site.accelerators,
        nodes=site.nodes,
        has_experts="experts" in kinds,
        has_convolutions="convolution" in kinds,
        new_kernel_share=cache.new_kernel_share,
        sources=sources_seen(site.accelerator.arch, stack, without=cache.constants.fitted_without),
        is_checked=CHECKED_SOFTWARE in setup.features,
        host_s=host_s,
    )
    found["slow_host"] = _longer_on_a_slow_host(cache, site, setup, parts)
    if setup.frozen_precision == "nf4":
        passes = 1 + backward_dequantisations(recompute_policies(setup))
        spent_s = setup.grad_accum * passes * dequantisation_s(cache, site.accelerator)
        found["memory"] += NF4_RATE_DOUBT * spent_s / parts.total_s.item()
    return found


def _longer_on_a_slow_host(cache: ModelCache, site: Site, setup: Setup, parts: StepTimes) -> float:
    """Return ln of how many times as long a step takes whose host is `SLOW_HOST` times as slow."""
    total_s = parts.total_s.item()
    of_cache = (cache.constants, cache.curve_choice)
    slow = cache.shared(("a slow host", *of_cache), lambda: _on_a_slow_host(cache))
    if not setup.layout.is_data_parallel_only:
        return math.log(step_parts(slow, site, setup).total_s.item() / total_s)
    # What a layout adds to the passes of a micro-batch does not wait for launches.
    by_block = setup.by_block or cuts_between_blocks(setup.layout)
    alone = replace(setup, layout=Layout(), by_block=by_block, grad_accum=1)
    key = ("longer passes", site.accelerator.name, *of_cache, alone)
    device = site.accelerator
    longer_s = cache.shared(
        key, lambda: _passes_s(slow, device, alone) - _passes_s(cache, device, alone)
    )
    return math.log1p(setup.grad_accum * longer_s / total_s)


def _passes_s(cache: ModelCache, device: Accelerator, setup: Setup) -> float:
    """Return seconds of both passes of one micro-batch."""
    sizes = np.array([setup.micro_batch])
    times = variants_of(cache, device, setup, (setup.recompute,), sizes).times
    return (times.forward_s + times.backward_s).item()


def _on_a_slow_host(cache: ModelCache) -> ModelCache:
    slower = {
        name: SLOW_HOST * value
        for name, value in cache.constants.items()
        if name.startswith(HOST_CONSTANTS)
    }
    return cache.with_constants(cache.constants.replaced(slower))


def estimated_step_s(cache: ModelCache, site: Site, setup: Setup, parts: StepTimes) -> Estimated:
    """Return the step time of a setup with its interval, before any wait for its input.

    Args:
        cache: the model.
        site: the nodes it runs on, all of them.
        setup: layout, precision and the rest.
        parts: of its step, [1, 1].
    """
    device = site.accelerator
    by_host_s = np.asarray(parts.host_comm_exposed_s).item()
    by_host_s += np.asarray(parts.optimizer_s).item() if steps_on_host(setup.offload) else 0.0
    return step_interval(
        parts.total_s.item(),
        doubts_of(cache, site, setup, parts, host_s=by_host_s),
        cache.constants,
        calibration=cache.calibration.weight(device) if cache.calibration else None,
    )


def _split_parts(cache: ModelCache, site: Site, setup: Setup) -> StepTimes:
    """Return the parts of a step whose model is split: those of its slowest pipeline stage."""
    layout = setup.layout
    fullest = fullest_rank(cache, setup)
    stepped = np.array([[stepped_parameters(cache, setup)]])
    grad_accum = np.array([[setup.grad_accum]])
    sizes = np.array([setup.micro_batch])
    pipelines = ((layout.pipeline, layout.virtual_stages),)
    (slowest,) = slowest_stages_of(cache, site, setup, (setup.recompute,), pipelines, sizes)
    share = split_shares(cache, setup, tuple(recompute_policies(setup)))[0]
    micro_batch = slowest.micro_batch()
    kept = fullest.sharded(layout, trainable=False) if layout.zero_stage else fullest.parameters
    return split_parts(
        cache,
        site,
        setup,
        Candidates(
            micro_batch=micro_batch,
            communication=slowest.communication(),
            others_s=slowest.others_s,
            boundary_bytes=np.array([[boundary_bytes(share) * setup.micro_batch]]),
            sent_parts=np.array([[sent_parts_of(setup)]]),
            on_fast_link=np.array([[is_on_fast_link(layout, site)]]),
            pipeline=np.array([[layout.pipeline]]),
            virtual_stages=np.array([[layout.virtual_stages]]),
            traffic=hybrid_traffic(
                hybrid_rows([(fullest, layout)]),
                np.array([[layout.accelerators]]),
                cache.links(site),
                wire_of(setup, cache.steps),
            ),
            stepped=stepped,
            accumulated=np.array([[accumulated_parameters(fullest, layout, setup.stack)]]),
            grad_accum=grad_accum,
            gathered=np.array([[kept]]),
        ),
    )


def accumulated_parameters(fullest: RankUnits, layout: Layout, stack: Stack) -> float:
    """Return the gradients of a rank that each further micro-batch adds to."""
    return fullest.sharded(layout) if adds_up_shards(stack, layout) else fullest.trainable


def sent_parts_of(setup: Setup) -> int:
    """Return among how many tensor ranks the setup's stages scatter what they send."""
    return sent_parts(setup.stack, setup.software_date, setup.features, setup.layout)


def wire_of(setup: Setup, steps: KeptSteps) -> WireBytes:
    """Return bytes per parameter of the setup's collectives, and what its norms exchange.

    What is in 8 bytes a parameter travels so, under every precision.
    """
    wire = wire_bytes(setup.precision, setup.stack, setup.software_date, setup.features)
    share = steps.double_share(setup.precision)
    wider = {
        name: widened(getattr(wire, name), share)
        for name in ("gather", "reduce", "refresh")
        if share
    }
    return replace(wire, synced_norms=steps.profile.synced_norms, **wider)
