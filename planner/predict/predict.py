"""Predict one fixed plan: step time, memory per rank and utilisation, each with its interval."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from ...profiles.passes.optimizers import with_optimizer
from ...profiles.profile import Profile
from ..hardware.cluster import Site
from ..hardware.device import capacity_bytes, device_notes, memory_notes, peak_flops
from ..hardware.host_links import host_bytes_per_s
from ..memory.rank_memory import RankMemory
from ..offload.host_memory import offload_notes
from ..plan.plan import Breakdown, Estimated, EstimatedHostMemory, EstimatedMemory, MemoryBreakdown
from ..plan.setup import Setup
from ..software.compile_time import compile_notes
from ..software.frozen_base import NF4_NOTE
from ..step.data_parallel_step import StepTimes
from .bandwidth import bandwidth_share
from .host_work import host_memory_of
from .input_wait import input_needed, input_wait_s, waiting_notes, with_input
from .interval import memory_interval, oom_probability
from .kept.model_cache import ModelCache
from .memory.peak_memory import framework_of, memory_parts, pool_of, pooled_bytes
from .step_time import estimated_step_s, step_parts
from .supported import refuse_unsupported

TIGHT_NOTE = (
    "memory is short: the allocator has to release segments and ask again, which slows the step"
    " (up to 25 % in published runs)"
)
SIXTEEN_BIT_NOTE = (
    "norms, softmax and losses run in 16 bits too: FSDP and ZeRO-2 cast whole layers; autocast (one"
    " accelerator, DDP, ZeRO-1) leaves these in fp32 and takes longer"
)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What one fixed plan is predicted to take."""

    step_time_s: Estimated
    breakdown_s: Breakdown
    peak_memory_bytes: EstimatedMemory
    memory_breakdown_bytes: MemoryBreakdown
    peak_allocated_bytes: float
    peak_reserved_bytes: float
    least_memory_bytes: float
    """What the device must hold at the least, free segments given back whenever memory is short;
    the peak itself where that is far from running out."""
    tight: bool
    """Whether the allocator would take more than the device has, if it did not release some."""
    mfu: float | None
    hfu: float | None
    bandwidth_share: float | None
    """Bytes moved by kernels / (step time x peak memory bandwidth)."""
    notes: tuple[str, ...]
    p_oom: float
    """Chance that the device runs out of memory."""
    host_memory_bytes: EstimatedHostMemory | None = None
    """Per node; None where nothing is offloaded."""

    @property
    def fits(self) -> bool:
        """Whether the device, and the host of what is offloaded, can hold the predicted peak."""
        on_host = self.host_memory_bytes
        on_device = self.peak_memory_bytes.value <= self.peak_memory_bytes.capacity
        return on_device and (on_host is None or on_host.fits)


def predict(
    profile: Profile,
    site: Site,
    setup: Setup,
    *,
    cache: ModelCache | None = None,
    memory: RankMemory | None = None,
) -> Prediction:
    """Return the prediction of one fixed plan.

    Args:
        profile: the traced model.
        site: the nodes it runs on; must hold exactly the layout's accelerators.
        setup: layout, precision and the rest.
        cache: caches to share between calls on the same Profile and optimizer.
        memory: that of this very setup, where it is known already (`memory_parts`).

    Raises:
        UnsupportedError: the layout or precision is not predicted by this version, or not by the
            device.
    """
    refuse_unsupported(site, setup)
    if setup.optimizer not in (None, "none"):
        profile = with_optimizer(profile, setup.optimizer)
        cache = cache and cache.of(profile)
    cache = cache or ModelCache(profile)
    parts = step_parts(cache, site, setup)
    if setup.optimizer == "none":
        parts = replace(parts, optimizer_s=np.zeros((1, 1)))
    return assemble(cache, site, setup, parts, memory or memory_parts(cache, setup))


def assemble(
    cache: ModelCache, site: Site, setup: Setup, parts: StepTimes, memory: RankMemory
) -> Prediction:
    """Return the prediction of one setup from its parts: intervals, utilisation, notes."""
    device = site.accelerator
    breakdown = _breakdown(parts)
    needed = input_needed(cache.profile, site, setup)
    waited_s = input_wait_s(needed, parts.total_s.item())
    breakdown = breakdown.model_copy(update={"input_wait": waited_s})
    total_s = parts.total_s.item()
    allocated = memory.peak_bytes.item()
    framework = framework_of(site, setup)
    capacity = capacity_bytes(device)
    room = capacity - framework
    pool = pool_of(cache, device, setup, allocated, room)
    pooled = pooled_bytes(cache, device, setup)
    reserved = pool.held_bytes
    peak = memory_interval(reserved, framework, capacity_bytes=capacity, stack=setup.stack)
    step_s = total_s + (waited_s or 0.0)
    mfu, hfu = utilisation(cache, site, setup, step_s)
    on_host = host_memory_of(cache, site, setup) if setup.offload else None
    return Prediction(
        step_time_s=with_input(estimated_step_s(cache, site, setup, parts), needed),
        breakdown_s=breakdown,
        peak_memory_bytes=peak,
        memory_breakdown_bytes=_memory_breakdown(memory, framework, reserved),
        peak_allocated_bytes=allocated + pooled,
        peak_reserved_bytes=reserved + pooled,
        least_memory_bytes=pool.least_bytes + framework,
        tight=pool.is_short,
        mfu=mfu,
        hfu=hfu,
        bandwidth_share=bandwidth_share(cache, site, setup, step_s),
        p_oom=oom_probability(
            pool.least_bytes,
            framework,
            capacity_bytes=capacity,
            stack=setup.stack,
            layout=setup.layout,
        ),
        notes=(
            *memory_notes(device, peak),
            *([TIGHT_NOTE] if pool.is_short and reserved <= room else []),
            *waiting_notes(cache.profile, site, waited_s),
            *compile_notes(cache.profile, setup),
            *([NF4_NOTE] if setup.frozen_precision == "nf4" else []),
            *([SIXTEEN_BIT_NOTE] if _casts_whole_layers(cache, setup) else []),
            *_offload_notes(cache, site, setup, on_host),
            *device_notes(device, cache.curves(device), setup.precision.removesuffix("-amp")),
        ),
        host_memory_bytes=on_host,
    )


def _casts_whole_layers(cache: ModelCache, setup: Setup) -> bool:
    """Return whether FSDP or ZeRO-2 runs in 16 bits what autocast would leave in fp32."""
    mixed = setup.precision.endswith("-amp") and setup.stack.startswith("torch")
    sharded = setup.layout.zero_stage >= 2 and setup.layout.shard > 1
    return (
        mixed and sharded and cache.numerics(setup.precision, autocast=setup.autocast) == "pure16"
    )


def _offload_notes(
    cache: ModelCache, site: Site, setup: Setup, on_host: EstimatedHostMemory | None
) -> list[str]:
    if on_host is None:
        return []
    rate = host_bytes_per_s(site, cache.constants)
    return offload_notes(setup.offload, on_host, rank_bytes_per_s=rate)


def utilisation(
    cache: ModelCache, site: Site, setup: Setup, step_s: float
) -> tuple[float | None, float | None]:
    """Return (MFU, HFU): model and hardware FLOPs over dense peak; None where mixed (fp8)."""
    peak = peak_flops(site.accelerator, setup.precision)
    if setup.precision == "fp8" or not peak or step_s <= 0:
        return None, None
    layout = setup.layout
    split = layout.tensor * layout.pipeline * layout.context
    per_rank = setup.grad_accum / (step_s * peak * split)
    model = cache.profile.flops.at(setup.micro_batch) * per_rank
    again = (
        cache.steps.hardware_flops(setup.precision, setup.recompute, setup.micro_batch) * per_rank
    )
    hardware = model + setup.recompute_share * (again - model)
    return model, hardware


def _breakdown(parts: StepTimes) -> Breakdown:
    """Return the seconds of each part, of parts of shape [1, 1]."""
    seconds = {one.name: np.asarray(getattr(parts, one.name)).item() for one in fields(parts)}
    return Breakdown(**{name.removesuffix("_s"): value for name, value in seconds.items()})


def _memory_breakdown(memory: RankMemory, framework: float, reserved: float) -> MemoryBreakdown:
    """Return what the peak is made of; what the pool holds unused counts as temporary."""
    return MemoryBreakdown(
        parameters=memory.parameters_bytes.item(),
        gradients=memory.gradients_bytes.item(),
        optimizer=memory.optimizer_bytes.item(),
        activations=memory.activations_bytes.item(),
        temporary=memory.temporary_bytes.item() + reserved - memory.peak_bytes.item(),
        framework=framework,
    )
