"""How sure a prediction is: the 80 % interval of a step time and of a peak.

The interval of a step is multiplicative and split-conformal (Vovk et al. 2005; Lei et al. 2018,
arXiv:1604.04173): every prediction has a doubt σ, made of what can be wrong with it, and the
interval is ×÷ exp(q·σ), where q is the quantile of |ln(predicted / measured)| / σ that covers 80 %
of published runs predicted without anything of their own source, none counting as more than 20: a
run that somebody plans is of a source that nobody has seen. Both are fitted by benchmarks/fit.py:
what weighs how much in σ so that neither stack nor device nor kind of model is covered more or less
often (the interval score of Gneiting and Raftery 2007), on runs predicted without their source and
without their device.

The records of most of those runs were compared with the configurations of the programs that ran.
Nobody knows a run that is only planned so well: its doubt has one part more, `unchecked`, with
which the interval covers 80 % on the mean of two sets: the same runs as they were first written
down from their pages, and what earlier code said of sources of which it had no record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from ...catalog.vocabulary import Stack
from ...profiles.curves.device_curves import DeviceCurves
from ..constants import Constants
from ..plan.layout import Layout
from ..plan.plan import Basis, Estimated, EstimatedMemory
from ..plan.setup import Date
from ..software.versions import NATIVE_AUTOCAST
from ..step.data_parallel_step import StepTimes

Array = np.ndarray

Z_80 = 1.2816
"""Half-width of a central 80 % interval of a normal distribution, in standard deviations."""
MEMORY_SIGMA = {"torch-eager": 0.06, "torch-compile": 0.06}
"""Relative error of allocator peaks, by stack: torch's own pool is replayed, and equals torch's to
2 % where nothing but the model counts; libraries' workspaces vary by version. With it the interval
covers 74 % of the published peaks of torch stacks whose meaning is stated, sources weighing alike,
and 44 of our own 46 within a sixth of it (docs/accuracy.md)."""
OTHER_MEMORY_SIGMA = 0.12
"""As `MEMORY_SIGMA` for stacks with buffers of their own: Megatron, DeepSpeed, XLA. Published peaks
leave 0.12 at the 80th percentile (docs/accuracy.md)."""
UNCHECKED_MEMORY_SIGMA = 0.10
"""The least of either where the loop was another's, whose software nobody compared with what is
predicted, and the model file stands for theirs. A judgement after such runs were looked at: of 30
sources that nothing is fitted to, weighing alike, 75 % lie inside with it (docs/accuracy.md).
gpuplan's own loop with the traced file needs no part of it: 44 of 46 such steps are within 1 %."""
DOUBLINGS_OF_1_024 = 10
RACK_LINK = "NVL72"
"""In the name of the link of devices of which a rack of 72 is one NVLink domain (GB200, GB300)."""
FRAMEWORK_SIGMA = 0.30
"""Relative error of context and communicator memory (sources give ranges of that width)."""


def step_doubts(
    parts: StepTimes,
    curves: DeviceCurves,
    *,
    dtype: str,
    stack: Stack,
    date: Date | None,
    accelerators: int,
    nodes: int,
    has_experts: bool,
    has_convolutions: bool,
    new_kernel_share: float,
    sources: int,
    is_checked: bool = False,
    host_s: float = 0.0,
) -> dict[str, float]:
    """Return what can be wrong with a predicted step, each as its relative size.

    The keys name the constants `doubt.*` that weigh them: the form of the model by stack, the
    curves of the device by the share of the step that rests on them, launches, collectives.

    Args:
        parts: the step, [1, 1].
        curves: of its device.
        dtype: of its products.
        stack: how it is launched.
        date: of the software; None means today.
        accelerators: of the job.
        nodes: of the job.
        has_experts: whether tokens are routed to experts.
        has_convolutions: whether it convolves.
        new_kernel_share: part of it in kernels that hardly any published run has.
        sources: how many published such runs: of the stack, on the device's architecture.
        is_checked: whether what is said of its software was compared with what ran.
        host_s: time that parts in host memory take.
    """
    total_s = max(parts.total_s.item(), 1e-12)
    device = curves.device

    def share(*names: str) -> float:
        return sum(np.asarray(getattr(parts, f"{name}_s")).item() for name in names) / total_s

    streamed = share("memory_bound", "optimizer")
    exchanged = share("data_comm_exposed", "tensor_comm", "context_comm", "expert_comm")
    return {
        f"form.{stack}": 1.0,
        "curves": share("compute") * curves.relative_error("gemm", dtype),
        "memory": streamed * curves.relative_error("memory_bound", "fp32"),
        "launch": share("launch"),
        "communication": exchanged + host_s / total_s,
        "pipeline": share("pipeline_bubble"),
        "alone": float(accelerators == 1),
        "nodes": float(nodes > 1),
        "experts": float(has_experts),
        "convolutions": float(has_convolutions),
        "new_kernels": new_kernel_share,
        "maker": float(device.vendor not in ("NVIDIA", "Google")),
        "xla_elsewhere": float(stack == "xla" and device.vendor != "Google"),
        "rack": float(RACK_LINK in (device.link or "")),
        "few_sources": 1 / math.sqrt(1 + sources),
        "old": float(date is not None and date < NATIVE_AUTOCAST),
        "fp8": float(dtype == "fp8"),
        "scale": math.log2(accelerators) / DOUBLINGS_OF_1_024,
        "unchecked": float(not is_checked),
    }


def step_interval(
    value_s: float,
    doubts: Mapping[str, float],
    constants: Constants,
    *,
    calibration: float | None = None,
) -> Estimated:
    """Return the step time with its 80 % interval.

    Args:
        value_s: predicted step time.
        doubts: of the prediction (`step_doubts`).
        constants: what those weigh, and the quantile.
        calibration: how much of a measurement elsewhere holds here, between 0 and 1; None without
            one. Where all of it holds, half of the doubt is gone.
    """
    basis: Basis = "analytic" if calibration is None else "calibrated"
    if value_s <= 0:
        return Estimated(value=value_s, low=value_s, high=value_s, basis=basis)
    sigma = doubt(doubts, constants) * (1 - (calibration or 0.0) / 2)
    spread = math.exp(constants["interval"] * sigma)
    return Estimated(value=value_s, low=value_s / spread, high=value_s * spread, basis=basis)


def doubt(doubts: Mapping[str, float], constants: Constants) -> float:
    """Return the relative standard deviation of a prediction with these doubts."""
    weighed = (constants[f"doubt.{name}"] * size for name, size in doubts.items())
    return math.sqrt(sum(one**2 for one in weighed))


OOM_DIGITS = 6
"""More of a chance would be noise."""
OOM_MARGIN = 0.05
"""Of the allocator's peak, where tensor and pipeline parallelism split the model: 36 published
peaks of such runs lie 5 % above the prediction in the median, 14 % at the 90th percentile."""
STAGED_FSDP_MARGIN = 0.15
"""The same where FSDP shards what they split: two published pools of such runs, Llama-3.1-405B on
512 H100 in torchtitan (2024-12), are 1.22 and 1.31 times what is predicted to be allocated with the
receive buffers of that software."""
SPLIT_MEMORY_SIGMA = {True: 0.08, False: 0.12}
"""Least relative error of the allocator's peak where the model is split in one dimension (True), or
in several: assumed from the same peaks, because few open records say what ran out of memory."""


def oom_margin(layout: Layout) -> float:
    """Return the share by which allocator peaks of a layout are underestimated."""
    if layout.tensor == 1 or layout.pipeline == 1:
        return 0.0
    return STAGED_FSDP_MARGIN if layout.zero_stage == 3 else OOM_MARGIN


def memory_sigma(stack: Stack, layout: Layout) -> float:
    """Return the relative error, one standard deviation, of an allocator peak."""
    return max(usual_sigma(stack), split_sigma(layout))


def usual_sigma(stack: Stack) -> float:
    """Return the relative error of an allocator peak under a stack, where nothing is split."""
    return MEMORY_SIGMA.get(stack, OTHER_MEMORY_SIGMA)


def split_sigma(layout: Layout) -> float:
    """Return the least relative error of the peak of a layout that splits the model; else 0."""
    split = [d > 1 for d in (layout.tensor, layout.pipeline, layout.context, layout.expert)]
    return SPLIT_MEMORY_SIGMA[sum(split) == 1] if any(split) else 0.0


def oom_probability(
    allocator_bytes: float,
    framework_bytes: float,
    *,
    capacity_bytes: float,
    stack: Stack,
    layout: Layout,
) -> float:
    """Return the chance that a device runs out of memory: that of a normal error of the peak."""
    likely = allocator_bytes * (1 + oom_margin(layout)) + framework_bytes
    sigma = _spread(allocator_bytes, framework_bytes, memory_sigma(stack, layout))
    return round(1 - NormalDist(likely, float(sigma)).cdf(capacity_bytes), OOM_DIGITS)


def safe_peak_bytes(
    allocator_bytes: Array,
    framework_bytes: Array | float,
    *,
    stack: Stack,
    layout: Layout,
    max_oom: float,
) -> Array:
    """Return the capacity that leaves a chance of `max_oom` of running out, elementwise.

    `oom_probability` is `max_oom` on a device of that capacity.
    """
    likely = allocator_bytes * (1 + oom_margin(layout)) + framework_bytes
    if max_oom >= 1:
        return likely
    spread = _spread(allocator_bytes, framework_bytes, memory_sigma(stack, layout))
    return likely + NormalDist().inv_cdf(1 - max_oom) * spread


def safe_allocator_bytes(
    capacity_bytes: float, framework_bytes: Array, *, margin: Array, sigma: Array, max_oom: float
) -> Array:
    """Return the largest allocator peak that a device holds but for a chance of `max_oom`.

    The inverse of `safe_peak_bytes`: the root below the room of
    (room - (1 + margin) a)² = z² ((sigma a)² + (`FRAMEWORK_SIGMA` framework)²).

    Args:
        capacity_bytes: of the device.
        framework_bytes: held outside the allocator.
        margin: of each layout (`oom_margin`).
        sigma: of each layout (`memory_sigma`).
        max_oom: from 0 to 1; from 1/2 on, the likely peak decides.
    """
    # Squares of whole bytes are beyond 64 bits.
    framework_bytes = np.asarray(framework_bytes, dtype=float)
    room, grown = capacity_bytes - framework_bytes, 1 + margin
    z = NormalDist().inv_cdf(1 - max_oom) if max_oom < 0.5 else 0.0
    square = grown**2 - (z * sigma) ** 2
    constant = room**2 - (z * FRAMEWORK_SIGMA * framework_bytes) ** 2
    under = np.maximum((room * grown) ** 2 - square * constant, 0.0)
    return (room * grown - np.sqrt(under)) / square


def memory_interval(
    allocator_bytes: float,
    framework_bytes: float,
    *,
    capacity_bytes: float,
    stack: Stack,
    least_sigma: float = 0.0,
) -> EstimatedMemory:
    """Return what the device must hold with its 80 % interval.

    Args:
        allocator_bytes: held by the allocator.
        framework_bytes: held outside it.
        capacity_bytes: of the device.
        stack: of the run.
        least_sigma: the least relative error of the allocator's part, one standard deviation.
    """
    sigma = max(least_sigma, usual_sigma(stack))
    half = Z_80 * float(_spread(allocator_bytes, framework_bytes, sigma))
    value = allocator_bytes + framework_bytes
    return EstimatedMemory(
        value=value, low=value - half, high=value + half, basis="analytic", capacity=capacity_bytes
    )


def allocator_interval(peak: EstimatedMemory, framework_bytes: float) -> tuple[float, float]:
    """Return the 80 % interval of what the allocator holds of a predicted peak, bytes.

    The inverse of `memory_interval`: how far off the rest may be is no error of this part.

    Args:
        peak: of the device.
        framework_bytes: what of it is held outside the allocator.
    """
    half, outside = (peak.high - peak.low) / 2, Z_80 * FRAMEWORK_SIGMA * framework_bytes
    own = math.sqrt(max(0.0, half**2 - outside**2))
    value = peak.value - framework_bytes
    return max(0.0, value - own), max(0.0, value + own)


def _spread(allocator_bytes: Array | float, framework_bytes: Array | float, sigma: float) -> Array:
    """Return one standard deviation of what a device must hold, bytes."""
    return np.hypot(sigma * np.asarray(allocator_bytes), FRAMEWORK_SIGMA * framework_bytes)
