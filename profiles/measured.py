"""A measured Profile: what real training steps took on one device, stored beside the trace.

It is a Profile with one key more, so that whatever reads a Profile reads a measured one as well.
"""

from __future__ import annotations

from typing import Literal

from ..catalog.frozen import FrozenModel
from ..catalog.vocabulary import Recompute
from .profile import KernelKind, Profile

MEASURED_SCHEMA_VERSION = "1.0"
DeviceKind = Literal["cuda", "cpu"]


class MeasuredDevice(FrozenModel):
    """The device that the steps ran on, and its software."""

    kind: DeviceKind
    name: str
    """As its driver names it."""
    cores: int | None = None
    """Cores of the host that this process may use."""
    compute_capability: str | None = None
    memory_visible_bytes: int | None = None
    driver: str | None = None


class StepTime(FrozenModel):
    """Seconds of one training step (forward, backward and optimizer) after warm-up."""

    median_s: float
    p10_s: float
    p90_s: float
    steps: int
    """How many were measured."""


class StepMemory(FrozenModel):
    """The peaks of the measured steps; None where nobody counts."""

    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    process_peak_bytes: int | None = None
    """On a CPU: resident memory of the whole process, with Python and torch in it."""


class KernelTime(FrozenModel):
    """Time of one kernel kind in one step, by torch's profiler."""

    kind: KernelKind
    seconds: float


class InputSpeed(FrozenModel):
    """Samples a second that a DataLoader gave with so many worker processes."""

    workers: int
    samples_per_s: float


class InputPipeline(FrozenModel):
    """How fast `build_dataset()` gives samples on this host."""

    speeds: tuple[InputSpeed, ...]
    best_samples_per_s: float
    samples_per_s_per_worker: float
    """With one worker process; that of the main process if no worker was tried."""
    samples_per_s_per_core: float
    """Samples per second of processor time, over all processes that made them."""
    waiting_share: float
    """Share of a step that a device like this one would wait for its input, at best."""


class Conditions(FrozenModel):
    """What the device was doing besides; None where nobody could tell."""

    throttled: tuple[str, ...] | None = None
    """Why its clocks were lowered while it was measured; empty if they were not."""
    contention: tuple[str, ...] | None = None
    """What else used it; empty if nothing did."""
    clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    source: str = "unknown"
    """Who told: nvml, nvidia-smi, the host's own counters, or unknown."""


class LargestMicroBatch(FrozenModel):
    """The largest micro-batch that ran, found by trying."""

    samples: int
    fails_at: int | None
    """The smallest that ran out of memory; None if the search was ended before."""
    note: str | None = None


class Measurement(FrozenModel):
    """What was run, and what it took."""

    schema_version: str = MEASURED_SCHEMA_VERSION
    device: MeasuredDevice
    precision: str
    micro_batch: int
    recompute: Recompute
    step_time: StepTime
    memory: StepMemory
    kernels: tuple[KernelTime, ...]
    other_s: float
    """Rest of the step that no kernel fills: the host's own work, launches, waiting."""
    input: InputPipeline | None
    """What loading the data took; None if the file has no build_dataset."""
    conditions: Conditions
    largest_micro_batch: LargestMicroBatch | None = None
    versions: dict[str, str]
    notes: tuple[str, ...] = ()


class MeasuredProfile(Profile):
    """A Profile with what its step took on a real device."""

    measured: Measurement
