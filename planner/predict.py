"""Predict one fixed plan: step time, memory per rank and utilisation, each with its interval."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..catalog.types import Accelerator
from ..catalog.units import GIB
from ..profiles.curves import DeviceCurves
from ..profiles.loss import Loss, with_loss
from ..profiles.optimizers import with_optimizer
from ..profiles.profile import NUMERICS_OF_PRECISION, Numerics, Profile
from ..profiles.residence import Residence
from .compute import MicroBatchTimes
from .constants import fitted
from .engine_memory import (
    FUSED_OPTIMIZER,
    KEPT_LOGITS,
    engine_bytes,
    loss_of,
    received_bytes,
    runs_deepspeed,
)
from .envelope import Envelope
from .era import (
    COALESCED_ZERO_3,
    FLASH_PACKAGE,
    Date,
    is_python_bound,
    launches_serially,
    optimizer_traffic,
    scripts_gelu,
    tensor_exposure,
)
from .framework_memory import communicators, framework_bytes
from .host_memory import offload_notes, steps_on_host
from .host_side import (
    activations_on_host,
    data_parallel_host_work,
    host_memory_of,
    refuse_offload,
    staging_bytes,
)
from .hybrid import (
    StageTimes,
    boundary_bytes,
    hybrid_step_times,
    hybrid_traffic,
    pipeline_s,
    send_s,
    stage_times,
)
from .interval import memory_interval, step_doubts, step_interval
from .layout import Layout
from .memory import RankMemory, rank_memory
from .offload import (
    NOTHING,
    host_work,
    residence_of,
    state_on_device,
)
from .plan import (
    Breakdown,
    Estimated,
    EstimatedHostMemory,
    EstimatedMemory,
    MemoryBreakdown,
    Offloaded,
    Precision,
    RecomputeKind,
    Stack,
)
from .shares import rank_units
from .site import Site
from .split import Split
from .stack import StackFacts, facts_of
from .stage_memory import checked_stages, stage_memories
from .stages import in_flight
from .state_bytes import StateScale, state_scale
from .step import StepTimes, accumulation_s, optimizer_s, optimizer_step_s, step_times
from .traffic import WireBytes, data_traffic
from .unsupported import UnsupportedError
from .workbench import Workbench

MEGATRON_BUCKET_BYTES = 500 * 10**6
"""DeepSpeed's `reduce_bucket_size` (5e8 elements) and Megatron's (40 M parameters and more) differ;
at this size the network is at its peak rate with either."""
VISIBLE_SHARE = 0.985
"""Visible ÷ nominal memory where the visible figure is unknown: the median of the catalogue rows
that state both."""


CUDA_13_CAPABILITY = 7.5
"""Oldest NVIDIA compute capability that CUDA 13 supports (its release notes: Turing)."""


TIGHT_NOTE = (
    "memory is short: the allocator has to give segments back and ask again, which slows the step"
    " (up to 25 % in published runs)"
)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How the step is run."""

    layout: Layout
    precision: Precision
    micro_batch: int
    grad_accum: int = 1
    recompute: RecomputeKind = "none"
    stack: Stack = "torch-eager"
    compile: bool = False
    optimizer: str | None = None
    """None: the file's own; "none": forward and backward only; else a what-if."""
    autocast: bool = True
    """Whether 16-bit compute comes from torch.autocast; False where the layers are 16-bit
    themselves: FSDP's MixedPrecision, Megatron, XLA, Apex O2."""
    software_date: Date | None = None
    """Year and month of the software; None is today."""
    features: frozenset[str] = frozenset()
    """What else was switched on, as run records name it."""
    offload: frozenset[Offloaded] = NOTHING
    """What is kept in host memory."""

    @property
    def residence(self) -> Residence:
        """What of the step is not on the device all the time."""
        away = residence_of(self.offload, self.features)
        return replace(
            away,
            loss=away.loss if away.loss != "whole" else self._loss,
            keeps_logits=KEPT_LOGITS in self.features,
            scripts_gelu=scripts_gelu(self.stack, self.software_date),
        )

    @property
    def _loss(self) -> Loss:
        return loss_of(self.stack, self.features, compiled=self.compile)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What one fixed plan is predicted to take."""

    step_time_s: Estimated
    breakdown_s: Breakdown
    peak_memory_bytes: EstimatedMemory
    memory_breakdown_bytes: MemoryBreakdown
    peak_allocated_bytes: float
    peak_reserved_bytes: float
    tight: bool
    """Whether the allocator would take more than the device has, were it not to give some back."""
    mfu: float | None
    hfu: float | None
    notes: tuple[str, ...]
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
    bench: Workbench | None = None,
    memory: RankMemory | None = None,
) -> Prediction:
    """Return the prediction of one fixed plan.

    Args:
        profile: the traced model.
        site: the nodes it runs on; must hold exactly the layout's accelerators.
        setup: layout, precision and the rest.
        bench: caches to share between calls on the same Profile and optimizer.
        memory: that of this very setup, where it is known already (`memory_parts`).

    Raises:
        UnsupportedError: the layout or precision is not predicted by this version, or not by the
            device.
    """
    refuse_unsupported(site, setup)
    if setup.optimizer not in (None, "none"):
        profile, bench = with_optimizer(profile, setup.optimizer), None
    bench = bench or Workbench(profile)
    parts = step_parts(bench, site, setup)
    if setup.optimizer == "none":
        parts = replace(parts, optimizer_s=np.zeros((1, 1)))
    return assemble(bench, site, setup, parts, memory or memory_parts(bench, setup))


def planned_step_s(bench: Workbench, site: Site, setup: Setup) -> float:
    """Return the predicted seconds of one step, without its interval or its memory."""
    parts = step_parts(bench, site, setup)
    optimizer_s = np.asarray(parts.optimizer_s).item() if setup.optimizer == "none" else 0.0
    return parts.total_s.item() - optimizer_s


def refuse_unsupported(site: Site, setup: Setup) -> None:
    """Raise UnsupportedError for what this version or this device cannot do."""
    if setup.layout.accelerators != site.accelerators:
        raise UnsupportedError(
            f"Layout {setup.layout} needs {setup.layout.accelerators} accelerators; {site.nodes}"
            f" x {site.per_node} are {site.accelerators}.",
            fix="make the degrees multiply to the number of accelerators.",
        )
    if peak_flops(site.accelerator, setup.precision) is None:
        raise UnsupportedError(
            f"{site.accelerator.name} has no {setup.precision} units.",
            fix=f"give --precision one of {', '.join(supported_precisions(site.accelerator))}.",
        )
    refuse_offload(setup)


def supported_precisions(accelerator: Accelerator) -> tuple[Precision, ...]:
    """Return the precisions that a device has fast arithmetic for."""
    every: tuple[Precision, ...] = ("fp32", "tf32", "fp16-amp", "bf16-amp", "bf16", "fp8")
    return tuple(p for p in every if peak_flops(accelerator, p) is not None)


def peak_flops(accelerator: Accelerator, precision: Precision) -> float | None:
    """Return the dense peak, FLOP/s, of the dtype a precision computes in; None without units."""
    dtype = precision.removesuffix("-amp")
    return accelerator.peak_flops.get(dtype)  # pyright: ignore[reportArgumentType]


def capacity_bytes(accelerator: Accelerator) -> float:
    """Return the memory that a process can use on one device."""
    if accelerator.memory_visible_bytes is not None:
        return accelerator.memory_visible_bytes
    return VISIBLE_SHARE * accelerator.memory_bytes


def wire_bytes(
    precision: Precision,
    stack: Stack = "torch-eager",
    date: Date | None = None,
    features: frozenset[str] = frozenset(),
) -> WireBytes:
    """Return bytes per parameter of each collective.

    FSDP gathers in the compute dtype and reduces in fp32 (MixedPrecisionPolicy(param_dtype=16-bit,
    reduce_dtype=fp32)); DDP reduces gradients in the parameters' dtype. Megatron and DeepSpeed keep
    16-bit parameters and gradients beside the fp32 master and send those. With one scale a tensor
    torchao's FSDP gathers in 8 bits (float8 all-gather); scales by row leave it at 16.
    """
    if stack == "megatron" and NUMERICS_OF_PRECISION[precision] != "fp32":
        coalesced = date is None or date >= COALESCED_ZERO_3
        return WireBytes(
            gather=2,
            reduce=2,
            refresh=2,
            ring_bytes_per_s=None if coalesced else fitted("uncoalesced_bytes_per_s"),
            bucket_bytes=MEGATRON_BUCKET_BYTES,
            zero_2_gathers=False,
        )
    if NUMERICS_OF_PRECISION[precision] == "pure16":
        return WireBytes(gather=2, reduce=2, refresh=2)
    if NUMERICS_OF_PRECISION[precision] == "fp32":
        return WireBytes(gather=4, reduce=4, refresh=4)
    if precision == "fp8" and "fp8-rowwise" not in features:
        return WireBytes(gather=1, reduce=4, refresh=4)
    return WireBytes(gather=2, reduce=4, refresh=4)


def accumulation_bytes(setup: Setup) -> float:
    """Return bytes per parameter that adding a further micro-batch's gradient moves.

    A gradient and its sum are read, the sum is written: 12 bytes in fp32, 6 in 16 bits. Megatron
    keeps the sum of bf16 gradients in fp32 (accumulate_allreduce_grads_in_fp32 is forced for bf16);
    since the products that make a gradient add into that sum themselves
    (gradient_accumulation_fusion) nothing is left to do.
    """
    numerics = NUMERICS_OF_PRECISION[setup.precision]
    if setup.stack == "megatron" and numerics != "fp32":
        if not is_python_bound(setup.stack, setup.software_date):
            return 0.0
        return 6.0 if setup.precision == "fp16-amp" else 10.0
    return 6.0 if numerics == "pure16" else 12.0


def step_parts(bench: Workbench, site: Site, setup: Setup) -> StepTimes:
    """Return the parts of the step of one fixed setup, each of shape [1, 1]."""
    if not setup.layout.is_data_parallel_only:
        return _hybrid_parts(bench, site, setup)
    curves = bench.curves(site.accelerator)
    stack = stack_facts(setup)
    policies = recompute_policies(setup)
    times = bench.times(
        site.accelerator,
        setup.precision,
        tuple(policies),
        stack=stack,
        micro_batches=np.array([setup.micro_batch]),
    )
    layouts = (setup.layout,)
    micro_batch = MicroBatchTimes.weighted(
        [one.micro_batch() for one in times], list(policies.values())
    )
    grad_accum = np.array([[setup.grad_accum]])
    parts = step_times(
        micro_batch,
        data_traffic(
            bench.units_in(setup.stack),
            layouts,
            site,
            curves,
            wire_bytes(setup.precision, setup.stack, setup.software_date, setup.features),
        ),
        optimizer_s=optimizer_s(bench.profile, layouts, curves, stack),
        step_overhead_s=stack.step_overhead_s,
        grad_accum=grad_accum,
        accumulation_s=accumulation_s(bench.profile, layouts, curves, accumulation_bytes(setup)),
    )
    if not setup.offload:
        return parts
    return data_parallel_host_work(
        bench, site, setup, layouts, activation_bytes=activations_on_host(bench, setup)
    ).added_to(
        parts,
        forward_s=micro_batch.forward_s,
        backward_s=micro_batch.backward_s,
        grad_accum=grad_accum,
    )


def _hybrid_parts(bench: Workbench, site: Site, setup: Setup) -> StepTimes:
    """Return the parts of a step whose model is split: those of its slowest pipeline stage."""
    layout, stack = setup.layout, stack_facts(setup)
    curves = bench.curves(site.accelerator)
    policies = recompute_policies(setup)
    sizes = np.array([setup.micro_batch])
    split = Split.of(layout, setup.stack)
    numerics = bench.numerics(setup.precision, autocast=stack.autocast)
    shares = [
        bench.split_in(numerics, policy, split, early_stop=stack.name != "megatron")
        for policy in policies
    ]
    times = bench.times(
        site.accelerator,
        setup.precision,
        tuple(policies),
        stack=stack,
        micro_batches=sizes,
        split=split,
    )
    stages = StageTimes.weighted(
        [
            stage_times(
                one,
                share,
                layout,
                site,
                curves,
                micro_batches=sizes,
                tensor_exposure=tensor_exposure(setup.stack, setup.software_date, setup.features),
            )
            for one, share in zip(times, shares, strict=True)
        ],
        list(policies.values()),
    )
    units = rank_units(
        bench.profile, bench.units_in(setup.stack), bench.trace_in(numerics, "none"), layout, split
    )
    fullest = max(units, key=lambda one: one.trainable)
    stepped = fullest.sharded(layout) if layout.zero_stage else fullest.trainable
    added = fullest.sharded(layout) if layout.zero_stage == 3 else fullest.trainable
    send = send_s(layout, site, boundary_bytes(shares[0]) * setup.micro_batch)
    slowest, communication = stages.slowest()
    parts = hybrid_step_times(
        slowest,
        hybrid_traffic(
            fullest,
            layout,
            site,
            curves,
            wire_bytes(setup.precision, setup.stack, setup.software_date, setup.features),
        ),
        communication,
        pipeline_s=pipeline_s(stages, send, layout, setup.grad_accum),
        optimizer_s=optimizer_step_s(np.array([[stepped]]), bench.profile, curves, stack),
        step_overhead_s=stack.step_overhead_s,
        grad_accum=np.array([[setup.grad_accum]]),
        accumulation_s=curves.memory_bound_s(
            accumulation_bytes(setup) * added, kind="optimizer"
        ).item(),
    )
    if not setup.offload:
        return parts
    kept = fullest.sharded(layout, trainable=False) if layout.zero_stage else fullest.parameters
    return host_work(
        bench.profile,
        setup.precision,
        setup.offload,
        site,
        stepped=np.array([[stepped]]),
        gathered=np.array([[kept]]),
    ).added_to(
        parts,
        forward_s=slowest.forward_s,
        backward_s=slowest.backward_s,
        grad_accum=np.array([[setup.grad_accum]]),
    )


def recompute_policies(setup: Setup) -> dict[RecomputeKind, float]:
    """Return what a recompute setting does, as shares of the policies that are traced.

    Ours keeps every matrix product under "selective". torchtitan's per-op mode computes every
    second one again, its per-layer mode every second layer; MaxText's policies keep two thirds of
    the projections.
    """
    if setup.recompute == "selective" and "recompute-per-layer" in setup.features:
        return {"none": 0.5, "full": 0.5}
    if setup.recompute == "selective" and "recompute-per-op" in setup.features:
        return {"selective": 0.5, "full": 0.5}
    if setup.recompute == "selective" and setup.stack == "xla":
        return {"selective": 2 / 3, "full": 1 / 3}
    return {setup.recompute: 1.0}


def stack_facts(setup: Setup) -> StackFacts:
    """Return launch costs of the stack; compiling an eager file makes it a compiled one."""
    compiled = setup.compile and setup.stack == "torch-eager"
    date = setup.software_date
    facts = facts_of(
        "torch-compile" if compiled else setup.stack,
        python_bound=is_python_bound(setup.stack, date),
    )
    return replace(
        facts,
        autocast=setup.autocast,
        date=date,
        flash_package=FLASH_PACKAGE in setup.features,
        launches_serially=launches_serially(setup.stack, date, setup.layout),
        optimizer_traffic=optimizer_traffic(
            setup.stack,
            date,
            autocast=setup.autocast,
            sixteen_bit=NUMERICS_OF_PRECISION[setup.precision] == "amp16",
        ),
    )


def memory_parts(bench: Workbench, setup: Setup) -> RankMemory:
    """Return memory of the fullest rank of one fixed setup, before fragmentation."""
    if not setup.layout.is_data_parallel_only:
        return _hybrid_memory(bench, setup)
    return memory_of(
        bench,
        setup,
        bench.envelope(
            setup.precision,
            setup.recompute,
            np.array([setup.micro_batch]),
            autocast=setup.autocast,
            residence=setup.residence,
        ),
    )


def _hybrid_memory(bench: Workbench, setup: Setup) -> RankMemory:
    """Return memory of the fullest rank of a setup whose model is split."""
    layout = setup.layout
    split = Split.of(layout, setup.stack)
    numerics = bench.numerics(setup.precision, autocast=setup.autocast)
    units = rank_units(
        bench.profile,
        bench.units_in(setup.stack),
        bench.trace_in(numerics, "none"),
        layout,
        split,
    )
    share = bench.split_in(numerics, setup.recompute, split)
    share = replace(share, trace=with_loss(share.trace, setup.residence.loss))
    memories = stage_memories(
        share,
        bench.profile,
        units,
        layout,
        micro_batches=np.array([setup.micro_batch]),
        compute_bytes=wire_bytes(setup.precision).gather,
        grad_accum=setup.grad_accum,
        state=_state(setup, numerics, resident=False),
    )
    boundary = boundary_bytes(share) * setup.micro_batch
    held = [
        memory.beside(
            _engine_bytes(
                bench,
                setup,
                units[stage].trainable,
                received=received_bytes(boundary, in_flight(stage, layout, setup.grad_accum)),
            )
        )
        for stage, memory in zip(checked_stages(layout), memories, strict=True)
    ]
    return max(held, key=lambda one: one.peak_bytes.item())


def memory_of(bench: Workbench, setup: Setup, shape: Envelope) -> RankMemory:
    """Return memory of the fullest rank at every micro-batch of an envelope of this setup."""
    traced = bench.numerics(setup.precision, autocast=setup.autocast)
    memory = rank_memory(
        shape,
        bench.profile,
        setup.layout,
        compute_bytes=wire_bytes(setup.precision).gather,
        grad_accum=setup.grad_accum,
        state=_state(setup, traced, resident=True),
    )
    staged = staging_bytes(bench, setup, gather_bytes=wire_bytes(setup.precision).gather)
    engine = _engine_bytes(bench, setup, bench.profile.trainable_parameters)
    memory = memory.beside(engine)
    return replace(memory, parameters_bytes=memory.parameters_bytes + staged)


def _state(setup: Setup, traced: Numerics, *, resident: bool) -> StateScale:
    """Return the state on the device relative to a trace, which may be `resident` already."""
    own = NUMERICS_OF_PRECISION[setup.precision]
    scale = state_scale(
        setup.precision,
        setup.stack,
        sixteen_bit_layers=traced != own,
        deepspeed=runs_deepspeed(setup.stack, setup.software_date, setup.layout),
    )
    if FUSED_OPTIMIZER in setup.features:
        scale = replace(scale, optimizer_temporary=0)
    return state_on_device(scale, setup.offload, resident=resident)


def _engine_bytes(
    bench: Workbench, setup: Setup, trainable: float, *, received: float = 0.0
) -> float:
    if not runs_deepspeed(setup.stack, setup.software_date, setup.layout):
        return 0.0
    buffers = engine_bytes(bench.profile, setup.layout, setup.precision, trainable=trainable)
    return buffers + received


def doubts_of(
    bench: Workbench, site: Site, setup: Setup, parts: StepTimes, *, host_s: float = 0.0
) -> dict[str, float]:
    """Return what can be wrong with the predicted step of a setup (`step_doubts`)."""
    kinds = bench.kinds
    return step_doubts(
        parts,
        bench.curves(site.accelerator),
        dtype=setup.precision.removesuffix("-amp"),
        stack=stack_facts(setup).name,
        date=setup.software_date,
        accelerators=site.accelerators,
        nodes=site.nodes,
        has_experts="experts" in kinds,
        has_convolutions="convolution" in kinds,
        host_s=host_s,
    )


def assemble(
    bench: Workbench,
    site: Site,
    setup: Setup,
    parts: StepTimes,
    memory: RankMemory,
) -> Prediction:
    """Return the prediction of one setup from its parts: intervals, utilisation, notes."""
    total_s = parts.total_s.item()
    curves = bench.curves(site.accelerator)
    compute_s = parts.compute_s.item()
    optimizer_s = parts.optimizer_s.item()
    host_comm_s = np.asarray(parts.host_comm_exposed_s).item()
    of_host = steps_on_host(setup.offload)
    on_host_s = host_comm_s + (optimizer_s if of_host else 0.0)
    communication = {
        name: np.asarray(getattr(parts, f"{name}_s")).item()
        for name in ("tensor_comm", "context_comm", "expert_comm")
    }
    exposed_s = parts.data_comm_exposed_s.item()
    dtype = setup.precision.removesuffix("-amp")
    time = step_interval(
        total_s,
        doubts_of(bench, site, setup, parts, host_s=on_host_s),
        accelerator=site.accelerator.name,
        calibration=bench.calibration.weight(site.accelerator) if bench.calibration else None,
    )
    allocated = memory.peak_bytes.item()
    framework = framework_of(site, setup)
    room = capacity_bytes(site.accelerator) - framework
    reserved, tight = reserved_bytes(bench, setup, allocated, room)
    peak = memory_interval(reserved, framework, capacity_bytes=capacity_bytes(site.accelerator))
    mfu, hfu = utilisation(bench, site, setup, total_s)
    on_host = host_memory_of(bench, site, setup) if setup.offload else None
    return Prediction(
        step_time_s=time,
        breakdown_s=Breakdown(
            compute=compute_s,
            memory_bound=parts.memory_bound_s.item(),
            launch=parts.launch_s.item(),
            optimizer=optimizer_s,
            data_comm_exposed=exposed_s,
            host_comm_exposed=host_comm_s,
            pipeline_bubble=np.asarray(parts.pipeline_bubble_s).item(),
            **communication,
        ),
        peak_memory_bytes=peak,
        memory_breakdown_bytes=MemoryBreakdown(
            parameters=memory.parameters_bytes.item(),
            gradients=memory.gradients_bytes.item(),
            optimizer=memory.optimizer_bytes.item(),
            activations=memory.activations_bytes.item(),
            temporary=memory.temporary_bytes.item() + reserved - allocated,
            framework=framework,
        ),
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=reserved,
        tight=tight,
        mfu=mfu,
        hfu=hfu,
        notes=(
            *memory_notes(site.accelerator, peak),
            *([TIGHT_NOTE] if tight and reserved <= room else []),
            *(offload_notes(setup.offload, on_host, site) if on_host else ()),
            *device_notes(site.accelerator, curves, dtype),
        ),
        host_memory_bytes=on_host,
    )


def reserved_bytes(
    bench: Workbench, setup: Setup, allocated: float, room: float
) -> tuple[float, bool]:
    """Return (reserved bytes, whether memory is short) of a pool that has `room` bytes.

    With room enough the allocator keeps what it once took; when it runs short it gives free
    segments back and tries again, so that the step still runs in little more than it allocates.
    """

    def ratio(*, tight: bool) -> float:
        found = bench.fragmentation(
            setup.precision,
            setup.recompute,
            setup.micro_batch,
            autocast=setup.autocast,
            tight=tight,
            residence=setup.residence,
        )
        return max(1.0, found)

    usual = allocated * ratio(tight=False)
    if usual <= room:
        return usual, False
    least = allocated * ratio(tight=True)
    return max(least, min(usual, room)), True


def is_roomy(bench: Workbench, site: Site, setup: Setup, memory: RankMemory) -> bool:
    """Return whether the device holds what the allocator takes when it need not give back."""
    framework = framework_of(site, setup)
    ratio = bench.fragmentation(
        setup.precision,
        setup.recompute,
        setup.micro_batch,
        autocast=setup.autocast,
        residence=setup.residence,
    )
    reserved = memory.peak_bytes.item() * max(1.0, ratio)
    return reserved + framework <= capacity_bytes(site.accelerator)


def framework_of(site: Site, setup: Setup) -> float:
    """Return bytes that a process of this setup holds outside the allocator's pool."""
    return framework_bytes(
        site.accelerator,
        communicators=communicators(setup.layout, setup.stack),
        date=setup.software_date,
    )


def utilisation(
    bench: Workbench, site: Site, setup: Setup, step_s: float
) -> tuple[float | None, float | None]:
    """Return (MFU, HFU): model and hardware FLOPs over dense peak; None where mixed (fp8)."""
    peak = peak_flops(site.accelerator, setup.precision)
    if setup.precision == "fp8" or not peak or step_s <= 0:
        return None, None
    layout = setup.layout
    split = layout.tensor * layout.pipeline * layout.context
    per_rank = setup.grad_accum / (step_s * peak * split)
    model = bench.profile.flops.at(setup.micro_batch) * per_rank
    hardware = bench.hardware_flops(setup.precision, setup.recompute, setup.micro_batch) * per_rank
    return model, hardware


def memory_notes(accelerator: Accelerator, peak: EstimatedMemory) -> list[str]:
    """Return what a person should know of a memory verdict."""
    notes = []
    if accelerator.memory_visible_bytes is None:
        notes.append(
            f"memory visible on {accelerator.name} is unknown; taken as"
            f" {VISIBLE_SHARE:.1%} of {accelerator.memory_bytes / GIB:.0f} GiB"
        )
    if peak.value <= peak.capacity < peak.high:
        notes.append(
            "close to the memory limit: it may run out, and allocator retries can slow the step"
        )
    return notes


def device_notes(accelerator: Accelerator, curves: DeviceCurves, dtype: str) -> list[str]:
    """Return what a person should know of a device: borrowed curves, software it needs."""
    notes = []
    if curves.basis_of("gemm", dtype) == "derived":
        relative = curves.relative_of("gemm", dtype)
        notes.append(f"kernel times of {accelerator.name} are scaled from {relative}")
    capability = accelerator.compute_capability if accelerator.vendor == "NVIDIA" else None
    if capability is not None and float(capability) < CUDA_13_CAPABILITY:
        notes.append(
            f"{accelerator.name} (compute capability {capability}) needs a torch build for CUDA 12:"
            " CUDA 13 no longer supports it"
        )
    if accelerator.name.startswith("Gaudi"):
        notes.append(
            f"{accelerator.name} runs torch through Intel's Gaudi software: the file's CUDA calls"
            ' must become device "hpu"'
        )
    return notes
