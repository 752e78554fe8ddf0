"""The two devices that steps are measured on: the first CUDA device, and the host itself."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from ..measured import MeasuredDevice, StepMemory

try:
    import resource
except ImportError:  # Windows has none; what it would tell is then unknown.
    resource = None

StepFunction = Callable[[], None]
Ran = Callable[[int], None]
"""Is told how many steps have run."""
SPARED_SHARE = 0.2
"""Fraction of the host's free memory that a search for the largest micro-batch leaves to others."""


class Device(Protocol):
    """A device, its clock and its memory counters."""

    kind: str

    def facts(self) -> MeasuredDevice:
        """Return what it is."""
        ...

    def synchronize(self) -> None:
        """Wait until it has done everything."""
        ...

    def times_s(self, step: StepFunction, count: int, ran: Ran) -> list[float]:
        """Return the seconds of each of `count` steps."""
        ...

    def peak(self) -> StepMemory:
        """Return the peaks since `reset_peak`."""
        ...

    def reset_peak(self) -> None:
        """Forget the peaks of before."""
        ...

    def limit_memory(self) -> None:
        """See to it that a step too large fails by itself, and ends nothing else."""
        ...


def open_device(kind: str) -> Device:
    """Return the device of this kind: "cuda" or "cpu"."""
    return CudaDevice() if kind == "cuda" else HostDevice()


class CudaDevice:
    """The first visible CUDA device: its own events, torch's allocator."""

    kind = "cuda"

    def facts(self) -> MeasuredDevice:
        """Return what it is."""
        properties = torch.cuda.get_device_properties(0)
        return MeasuredDevice(
            kind="cuda",
            name=properties.name,
            cores=usable_cores(),
            compute_capability=f"{properties.major}.{properties.minor}",
            memory_visible_bytes=torch.cuda.mem_get_info()[1],
        )

    def synchronize(self) -> None:
        """Wait until it has done everything."""
        torch.cuda.synchronize()

    def times_s(self, step: StepFunction, count: int, ran: Ran) -> list[float]:
        """Return seconds between the ends of successive steps, on the device's own clock."""
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        # An idle device waits for the first launch; a step before the first mark hides that.
        step()
        marks[0].record()
        for done, mark in enumerate(marks[1:], start=1):
            step()
            mark.record()
            ran(done)
        torch.cuda.synchronize()
        pairs = zip(marks, marks[1:], strict=False)
        return [start.elapsed_time(end) / 1e3 for start, end in pairs]

    def peak(self) -> StepMemory:
        """Return the peaks since `reset_peak`."""
        return StepMemory(
            peak_allocated_bytes=torch.cuda.max_memory_allocated(),
            peak_reserved_bytes=torch.cuda.max_memory_reserved(),
        )

    def reset_peak(self) -> None:
        """Forget the peaks of before."""
        torch.cuda.reset_peak_memory_stats()

    def limit_memory(self) -> None:
        """Do nothing: the allocator raises when the device is full."""


class HostDevice:
    """The host's own processor: wall time, resident memory of the process."""

    kind = "cpu"

    def facts(self) -> MeasuredDevice:
        """Return what it is."""
        return MeasuredDevice(
            kind="cpu",
            name=processor_name(),
            cores=usable_cores(),
            memory_visible_bytes=available_bytes(),
        )

    def synchronize(self) -> None:
        """Do nothing: every operation is done when its call returns."""

    def times_s(self, step: StepFunction, count: int, ran: Ran) -> list[float]:
        """Return seconds of each step on the wall."""
        times_s = []
        for done in range(1, count + 1):
            started_s = time.perf_counter()
            step()
            times_s.append(time.perf_counter() - started_s)
            ran(done)
        return times_s

    def peak(self) -> StepMemory:
        """Return the peak of the whole process, Python and torch included."""
        if resource is None:
            return StepMemory()
        unit_bytes = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return StepMemory(process_peak_bytes=peak * unit_bytes)

    def reset_peak(self) -> None:
        """Do nothing: the system keeps one peak for the life of a process."""

    def limit_memory(self) -> None:
        """Let allocations fail before the host has none left and ends processes at will."""
        free_bytes, own_bytes = available_bytes(), _data_bytes()
        if resource is None or free_bytes is None or own_bytes is None:
            return
        limit = own_bytes + round((1 - SPARED_SHARE) * free_bytes)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def usable_cores() -> int:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """Return the processor as the system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def available_bytes() -> int | None:
    """Return memory that a process may still take on this host; None where it is not known."""
    free = [size for size in (_free_bytes(), _group_free_bytes()) if size is not None]
    return min(free) if free else None


def _free_bytes() -> int | None:
    return _kib_line("/proc/meminfo", "MemAvailable:")


def _data_bytes() -> int | None:
    """Return the private memory that the limit of a process counts."""
    return _kib_line("/proc/self/status", "VmData:")


def _kib_line(path: str, label: str) -> int | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(label)]
    return int(found[0]) * 1024 if found else None


def _group_free_bytes() -> int | None:
    """Return what the container's own limit leaves."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(0, int(limit) - used)
