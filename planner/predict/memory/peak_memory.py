"""The memory peak of a setup's fullest rank: what is allocated, reserved, and held outside."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ....catalog.types import Accelerator
from ....profiles.passes.loss import with_loss
from ....profiles.passes.residence import Residence
from ....profiles.profile import NUMERICS_OF_PRECISION, Numerics, Profile
from ...hardware.cluster import Site
from ...hardware.device import capacity_bytes
from ...memory.framework_memory import (
    MULTIPLYING_THREADS,
    POOLED_WORKSPACES,
    communicators,
    framework_bytes,
    workspace_bytes,
)
from ...memory.no_sync import NO_SYNC
from ...memory.rank_memory import RankMemory
from ...memory.stages.memory import checked_stages, stage_memories
from ...memory.stages.sent import sent_bytes
from ...offload.host_copies import state_on_device
from ...parallelism.fsdp import units_of
from ...parallelism.pipeline_stages import in_flight
from ...parallelism.rank_trace import SplitTrace
from ...plan.setup import Setup
from ...software.deepspeed_engine import (
    engine_bytes,
    largest_tensor,
    received_bytes,
    runs_deepspeed,
    sums_in_fp32,
)
from ...software.frozen_base import dequantised_bytes, quantised_bytes, saved_in_8_bits_bytes
from ...software.kept_memory import keeps_gradients
from ...software.stack import gathers_once, runs_torch_pipelines
from ...software.state_bytes import StateScale, state_scale, with_unused
from ...software.versions import BUCKET_COPIES, FUSED_OPTIMIZER, steps_by_tensor
from ...step.model_parallel_step import boundary_bytes
from ..fullest_rank import units_by_stage
from ..host_work import staging_bytes
from ..interval import safe_peak_bytes
from ..kept.model_cache import ModelCache
from ..setup import (
    RECOMPUTE_MODES,
    recompute_policies,
    setup_residence,
    split_of,
    widened,
    wire_bytes,
)
from .cached_weights import cached_bytes
from .warm_up import warm_up_bytes

BY_TENSOR_TEMPORARIES = 2
"""Of its size, where torch's Adam steps a tensor by itself: the root of the second moment, and the
quotient that it makes of it (torch 1.13, torch/optim/adam.py, `_single_tensor_adam`)."""
CERTAIN_SHARE = 0.6
"""Of the room: what usually takes less runs out once in 100,000, even with the largest error and
margin that a layout has (`oom_margin`, `memory_sigma`)."""


def memory_parts(cache: ModelCache, setup: Setup) -> RankMemory:
    """Return memory of the fullest rank of one fixed setup, before fragmentation.

    Where only some layers are recomputed it lies on the line between none of them and all. No step
    needs more: while equal layers run, what is held grows by the same bytes with each that keeps
    its activations, so that the peak is the largest of functions that are linear in their number
    (convex), and lies below the line through its ends.
    """
    ends = _policy_ends(setup)
    if ends and not setup.layout.is_data_parallel_only:
        kept, again, share = ends
        return memory_parts(cache, kept).towards(memory_parts(cache, again), share)
    if not setup.layout.is_data_parallel_only:
        return _split_memory(cache, setup)
    return data_parallel_memory(cache, setup, np.array([setup.micro_batch]))


def _policy_ends(setup: Setup) -> tuple[Setup, Setup, float] | None:
    """Return the setup under each of two policies, and the second one's share; None for one.

    Of XLA's own policies no memory is predicted: "selective" stands for them.
    """
    policies = recompute_policies(setup)
    if len(policies) == 1 or (setup.stack == "xla" and setup.recompute_share == 1):
        return None
    first, second = policies
    whole = replace(setup, recompute_share=1.0, features=setup.features - RECOMPUTE_MODES)
    return replace(whole, recompute=first), replace(whole, recompute=second), policies[second]


def data_parallel_memory(cache: ModelCache, setup: Setup, micro_batches: np.ndarray) -> RankMemory:
    """Return memory of a rank that runs the whole model, at every one of these micro-batches.

    The micro-batch of the setup itself is not looked at; no device changes the result.
    """
    if ends := _policy_ends(setup):
        kept, again, share = ends
        return data_parallel_memory(cache, kept, micro_batches).towards(
            data_parallel_memory(cache, again, micro_batches), share
        )
    cache = cache.with_frozen(setup.frozen_precision)
    shape = cache.steps.envelope(
        setup.precision,
        setup.recompute,
        micro_batches,
        autocast=setup.autocast,
        residence=_residence(cache, setup),
    )
    traced = cache.numerics(setup.precision, autocast=setup.autocast)
    gather = gathered_width(cache, setup)
    memory = cache.steps.rank_memory(
        shape,
        setup.layout,
        gather_bytes=gather,
        grad_accum=_passes_held(setup),
        state=state_of(setup, traced, cache.profile),
        reduces_once=NO_SYNC in setup.features and setup.grad_accum > 1,
    )
    staged = staging_bytes(cache, setup, gather_bytes=gather)
    engine = _engine_bytes(cache, setup, cache.profile.trainable_parameters)
    memory = memory.beside(engine + cached_bytes(setup, units_of(cache.profile)))
    if setup.frozen_precision == "nf4":
        memory = memory.beside(dequantised_bytes(cache.profile))
    staged -= _quantised_bytes(cache, setup)
    return replace(memory, parameters_bytes=memory.parameters_bytes + staged)


def _passes_held(setup: Setup) -> int:
    """Return micro-batches of a step as its gradients see them.

    Those that outlive the step are held through forward passes too, as between micro-batches.
    """
    return max(2, setup.grad_accum) if keeps_gradients(setup) else setup.grad_accum


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What the allocator takes from a device, and the least in which the step still runs."""

    held_bytes: float
    """Reserved at the peak on this very device."""
    least_bytes: float
    """Reserved at the least, every free segment given back as soon as memory runs out.

    Where the step lies so far below the room that it cannot run out, that is not replayed and
    this is `held_bytes`."""
    is_short: bool
    """Whether the allocator has to give segments back, which slows the step."""


def pool_of(
    cache: ModelCache, device: Accelerator, setup: Setup, allocated: float, room: float
) -> Pool:
    """Return what the pool takes of `room` bytes, beside the workspaces of libraries.

    With room enough the allocator keeps what it once took, before the step too; when it runs short
    it releases free segments and tries again, so that the step still runs in little more than it
    allocates.
    """
    usual = _taken_bytes(cache, device, setup, allocated, tight=False)
    if usual <= CERTAIN_SHARE * room:
        return Pool(held_bytes=usual, least_bytes=usual, is_short=False)
    least = min(usual, _taken_bytes(cache, device, setup, allocated, tight=True))
    held = usual if usual <= room else max(least, room)
    return Pool(held_bytes=held, least_bytes=least, is_short=usual > room)


def _taken_bytes(
    cache: ModelCache, device: Accelerator, setup: Setup, allocated: float, *, tight: bool
) -> float:
    """Return bytes that the allocator takes: with room enough, or (tight) at the least."""
    cache = cache.with_frozen(setup.frozen_precision)
    fewer = _quantised_bytes(cache, setup)
    pooled = pooled_workspace_bytes(device, setup)
    ratio = _reserved_ratio(cache, setup, tight=tight, workspace_bytes=pooled)
    taken = (allocated + fewer) * ratio - fewer
    return max(warm_up_bytes(cache, setup), taken)


def is_roomy(cache: ModelCache, site: Site, setup: Setup, memory: RankMemory) -> bool:
    """Return whether the device holds what the allocator takes when it need not release any."""
    device = site.accelerator
    reserved = _taken_bytes(cache, device, setup, memory.peak_bytes.item(), tight=False)
    return reserved + framework_of(site, setup) <= capacity_bytes(site.accelerator)


def is_safe(
    cache: ModelCache, site: Site, setup: Setup, memory: RankMemory, *, max_oom: float
) -> bool:
    """Return whether the device holds a step but for a chance of `max_oom` of running out."""
    framework, allocated = framework_of(site, setup), memory.peak_bytes.item()
    capacity = capacity_bytes(site.accelerator)
    pool = pool_of(cache, site.accelerator, setup, allocated, capacity - framework)
    safe = safe_peak_bytes(
        np.array(pool.least_bytes),
        framework,
        stack=setup.stack,
        layout=setup.layout,
        max_oom=max_oom,
    )
    return safe.item() <= capacity


def _residence(cache: ModelCache, setup: Setup) -> Residence:
    profile = cache.profile
    return setup_residence(
        setup, loss_in_model=profile.loss_in_model, returns_logits=profile.returns_logits
    )


def _reserved_ratio(cache: ModelCache, setup: Setup, *, tight: bool, workspace_bytes: int) -> float:
    """Return reserved ÷ allocated bytes; where some layers are recomputed, between both ends."""
    if ends := _policy_ends(setup):
        kept, again = (
            _reserved_ratio(cache, one, tight=tight, workspace_bytes=workspace_bytes)
            for one in ends[:2]
        )
        return kept + ends[2] * (again - kept)
    found = cache.fragmentation(
        setup.precision,
        setup.recompute,
        setup.micro_batch,
        autocast=setup.autocast,
        tight=tight,
        residence=_residence(cache, setup),
        workspace_bytes=workspace_bytes,
    )
    return max(1.0, found)


def _quantised_bytes(cache: ModelCache, setup: Setup) -> float:
    """Return how many bytes fewer are allocated than in the step whose pool is replayed.

    Weights are packed whatever their size: what lies unused between activations stays the same.
    """
    if setup.frozen_precision == "nf4":
        return quantised_bytes(cache.profile)
    return saved_in_8_bits_bytes(setup, cache.profile)


def pooled_workspace_bytes(device: Accelerator, setup: Setup) -> int:
    """Return bytes of one thread's workspace where it lies in the allocator's pool, else 0."""
    date = setup.software_date
    pooled = setup.stack != "xla" and (date is None or date >= POOLED_WORKSPACES)
    return workspace_bytes(device) if pooled else 0


def pooled_bytes(cache: ModelCache, device: Accelerator, setup: Setup) -> int:
    """Return bytes of `framework_of` that lie in the allocator's pool: workspaces of products."""
    if "gemm" not in cache.kinds:
        return 0
    return MULTIPLYING_THREADS * pooled_workspace_bytes(device, setup)


def framework_of(site: Site, setup: Setup) -> float:
    """Return bytes that a process of this setup holds beside its tensors."""
    return framework_bytes(
        site.accelerator,
        communicators=communicators(setup.layout, setup.stack),
        date=setup.software_date,
    )


def gathered_width(cache: ModelCache, setup: Setup) -> int:
    """Return bytes of a parameter that is gathered to compute with it."""
    share = cache.steps.double_share(setup.precision)
    return round(widened(wire_bytes(setup.precision).gather, share))


def _split_memory(cache: ModelCache, setup: Setup) -> RankMemory:
    """Return memory of the fullest rank of a setup whose model is split."""
    layout = setup.layout
    numerics = cache.numerics(setup.precision, autocast=setup.autocast)
    units = units_by_stage(cache, setup)
    share = memory_share(cache, setup)
    memories = stage_memories(
        share,
        cache.profile,
        units,
        layout,
        micro_batches=np.array([setup.micro_batch]),
        compute_bytes=gathered_width(cache, setup),
        grad_accum=setup.grad_accum,
        state=state_of(setup, numerics, cache.profile),
    )
    boundary = boundary_bytes(share) * setup.micro_batch
    sent = sent_of(cache, setup)
    held = []
    for stage, memory in zip(checked_stages(layout), memories, strict=True):
        received = received_bytes(boundary, in_flight(stage, layout, setup.grad_accum))
        engine = _engine_bytes(cache, setup, units[stage].trainable, received=received)
        held.append(memory.beside(engine + sent + cached_bytes(setup, units[stage])))
    fullest = max(held, key=lambda one: one.peak_bytes.item())
    parameters = fullest.parameters_bytes - _quantised_bytes(cache, setup)
    return replace(fullest, parameters_bytes=parameters)


def sent_of(cache: ModelCache, setup: Setup) -> float:
    """Return bytes that interleaved stages of a setup sent and hold to the end of a step."""
    if not runs_torch_pipelines(setup.stack):
        return 0.0
    boundary = boundary_bytes(memory_share(cache, setup)) * setup.micro_batch
    return sent_bytes(boundary, float(setup.layout.virtual_stages), float(setup.grad_accum))


def memory_share(cache: ModelCache, setup: Setup) -> SplitTrace:
    """Return one rank's share of the step as memory sees it: with the loss as it is computed.

    Raises:
        UnsupportedError: the model cannot be split that way.
    """
    numerics = cache.numerics(setup.precision, autocast=setup.autocast)
    residence = _residence(cache, setup)
    split, loss = split_of(setup), residence.loss
    share = cache.steps.split_in(numerics, setup.recompute, split, home=residence.at_home)

    def make() -> SplitTrace:
        return replace(share, trace=with_loss(share.trace, loss))

    return cache.shared(("share", share, loss), make)


def state_of(setup: Setup, traced: Numerics, profile: Profile) -> StateScale:
    """Return the state on the device relative to a trace of the model."""
    own = NUMERICS_OF_PRECISION[setup.precision]
    deepspeed = runs_deepspeed(setup.stack, setup.software_date, setup.features, setup.layout)
    scale = state_scale(
        setup.precision,
        setup.stack,
        sixteen_bit_layers=traced != own,
        deepspeed=deepspeed,
        features=setup.features,
    )
    if gathers_once(setup.stack, setup.software_date, setup.features):
        scale = replace(scale, keeps_gathered=True)
    if BUCKET_COPIES in setup.features:
        scale = replace(scale, copies_buckets=True)
    if deepspeed and setup.stack.startswith("torch"):
        pass  # What it makes for the step are gradients in fp32, whatever steps them.
    elif FUSED_OPTIMIZER in setup.features:
        scale = replace(scale, optimizer_temporary=0)
    elif steps_by_tensor(setup.stack, setup.software_date):
        share = BY_TENSOR_TEMPORARIES * largest_tensor(profile) / max(1, profile.trained_parameters)
        scale = replace(scale, optimizer_temporary=min(1.0, share) * scale.optimizer_temporary)
    if setup.optimizer == "none":  # What stops after the backward pass keeps no state.
        scale = replace(scale, optimizer=0, optimizer_temporary=0, master_bytes=0)
    if profile.unused_parameters:
        scale = with_unused(scale, profile, setup.stack, setup.layout, deepspeed=deepspeed)
    return state_on_device(scale, setup.offload)


def _engine_bytes(
    cache: ModelCache, setup: Setup, trainable: float, *, received: float = 0.0
) -> float:
    """Return bytes of DeepSpeed's buffers, and of what a stage of its pipeline received."""
    if not runs_deepspeed(setup.stack, setup.software_date, setup.features, setup.layout):
        return 0.0
    buffers = engine_bytes(
        cache.profile,
        setup.layout,
        in_fp32=sums_in_fp32(setup.stack, setup.precision),
        trainable=trainable,
    )
    return buffers + received
