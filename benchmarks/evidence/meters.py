"""Clocks and memory counters of the device that `gpu_evidence.py` measures on."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import torch

from .checkout import package_module

nvidia_smi = package_module("profiles.nvidia_smi")

CLEAN_WITHIN_BYTES = 2**20
"""What may be left on a device between two cases in one process."""
SAMPLING_LIMIT_S = 4.0
_IDENTITY = {
    "driver": "driver_version",
    "power_limit_w": "power.limit",
    "max_sm_clock_mhz": "clocks.max.sm",
}
_LOAD = {
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "temperature_c": "temperature.gpu",
    "power_w": "power.draw",
}
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The driver's new and old name for why clocks are low."""
StepFunction = Callable[[], None]


class Meter(Protocol):
    """A device and what it can be asked. Memory is None where nobody counts it."""

    device: str

    def environment(self) -> dict[str, Any]:
        """Return what the machine and its software are."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has done everything."""
        ...

    def intervals_s(self, step: StepFunction, count: int) -> tuple[list[float], float]:
        """Return seconds of each of `count` steps on the device's clock, and of all on the wall."""
        ...

    def interval_s(self, step: StepFunction) -> float:
        """Return seconds of one step."""
        ...

    def allocated_bytes(self) -> int | None:
        """Return bytes that tensors and libraries hold in torch's pool now."""
        ...

    def reset_peak(self) -> None:
        """Forget the peaks of before."""
        ...

    def peak(self) -> dict[str, Any]:
        """Return the peaks since `reset_peak`, in GiB, as the keys of a run record."""
        ...

    def under_load(self, step: StepFunction) -> dict[str, Any] | None:
        """Return clocks, temperature and power while steps run; None where nobody tells."""
        ...

    def release(self) -> int | None:
        """Give memory back; return bytes that libraries still held, such as workspaces."""
        ...

    def is_clean(self, before_bytes: int | None) -> bool:
        """Return whether no more is allocated than before the case."""
        ...


def make_meter(device: str) -> Meter:
    """Return the meter of "cuda" or "cpu"."""
    return CudaMeter() if device == "cuda" else CpuMeter()


class CudaMeter:
    """The first CUDA device: device events, torch's allocator, the driver's own tool."""

    device = "cuda"

    def environment(self) -> dict[str, Any]:
        """Return what the machine and its software are."""
        torch.cuda.init()
        properties = torch.cuda.get_device_properties(0)
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        return {
            **host_facts(),
            "device_name": torch.cuda.get_device_name(0),
            "compute_capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "visible_memory_bytes": total_bytes,
            "used_at_start_gib": (total_bytes - free_bytes) / 2**30,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            **(query_driver(_IDENTITY) or dict.fromkeys(_IDENTITY)),
            "allocator_settings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
        }

    def synchronize(self) -> None:
        """Wait until the device has done everything."""
        torch.cuda.synchronize()

    def interval_s(self, step: StepFunction) -> float:
        """Return seconds of one step."""
        (interval_s,), _ = self.intervals_s(step, 1)
        return interval_s

    def intervals_s(self, step: StepFunction, count: int) -> tuple[list[float], float]:
        """Return seconds between the ends of successive steps, and of all of them on the wall."""
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        # An idle device waits for the first launch; a step before the first mark hides that.
        step()
        marks[0].record()
        started_s = time.perf_counter()
        for mark in marks[1:]:
            step()
            mark.record()
        torch.cuda.synchronize()
        wall_s = time.perf_counter() - started_s
        pairs = zip(marks, marks[1:], strict=False)
        return [start.elapsed_time(end) / 1e3 for start, end in pairs], wall_s

    def allocated_bytes(self) -> int | None:
        """Return bytes that tensors and libraries hold in torch's pool now."""
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    def reset_peak(self) -> None:
        """Forget the peaks of before."""
        torch.cuda.reset_peak_memory_stats()

    def peak(self) -> dict[str, Any]:
        """Return the peaks since `reset_peak`, in GiB, as the keys of a run record."""
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        used_bytes = total_bytes - free_bytes
        return {
            "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30,
            "peak_reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
            "device_used_gib": used_bytes / 2**30,
            "outside_pool_gib": (used_bytes - torch.cuda.memory_reserved()) / 2**30,
            "allocator_retries": torch.cuda.memory_stats().get("num_alloc_retries", 0),
        }

    def under_load(self, step: StepFunction) -> dict[str, Any] | None:
        """Return clocks, temperature and power while steps run; None where nobody tells."""
        fields = _load_fields()
        try:
            asked = subprocess.Popen(
                nvidia_smi.query_command(fields),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError:
            return None
        limit_s = time.perf_counter() + SAMPLING_LIMIT_S
        while asked.poll() is None and time.perf_counter() < limit_s:
            step()
            torch.cuda.synchronize()
        if asked.poll() is None:
            asked.kill()
        told = nvidia_smi.parse_answer(fields, asked.communicate()[0])
        if told is not None and "slowed_by" in told:
            told["slowed_by"] = nvidia_smi.slowed_by(told["slowed_by"])
        return told

    def release(self) -> int | None:
        """Give memory back; return bytes that libraries still held, such as workspaces."""
        torch.cuda.synchronize()
        held_bytes = torch.cuda.memory_allocated()
        # No public name exists for it; without it the workspaces stay, which is_clean allows for.
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        torch.cuda.empty_cache()
        torch.cuda.reset_accumulated_memory_stats()
        return held_bytes

    def is_clean(self, before_bytes: int | None) -> bool:
        """Return whether no more is allocated than before the case."""
        return torch.cuda.memory_allocated() <= (before_bytes or 0) + CLEAN_WITHIN_BYTES


class CpuMeter:
    """The host itself, to try the command without a GPU: wall time, no memory."""

    device = "cpu"

    def environment(self) -> dict[str, Any]:
        """Return what the machine and its software are."""
        return {**host_facts(), "device_name": "CPU"}

    def synchronize(self) -> None:
        """Do nothing: every operation is done when its call returns."""

    def interval_s(self, step: StepFunction) -> float:
        """Return seconds of one step."""
        return self.intervals_s(step, 1)[1]

    def intervals_s(self, step: StepFunction, count: int) -> tuple[list[float], float]:
        """Return seconds of each step, and of all."""
        marks = [time.perf_counter()]
        for _ in range(count):
            step()
            marks.append(time.perf_counter())
        times_s = [end - start for start, end in zip(marks, marks[1:], strict=False)]
        return times_s, marks[-1] - marks[0]

    def allocated_bytes(self) -> int | None:
        """Return None: nobody counts."""
        return None

    def reset_peak(self) -> None:
        """Do nothing: there is no peak."""

    def peak(self) -> dict[str, Any]:
        """Return no peak."""
        return {"peak_memory_gib": None}

    def under_load(self, step: StepFunction) -> dict[str, Any] | None:
        """Return None: nobody tells."""
        return None

    def release(self) -> int | None:
        """Return None: nobody counts."""
        return None

    def is_clean(self, before_bytes: int | None) -> bool:
        """Return True: a case leaves nothing that another would see."""
        return True


def host_facts() -> dict[str, Any]:
    """Return what software runs on what kind of host; nothing that names the host itself."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "host_architecture": platform.machine(),
        "host_cores": os.cpu_count(),
    }


def query_driver(fields: dict[str, str]) -> dict[str, Any] | None:
    """Return what the NVIDIA driver's tool says of the device; None if it does not answer.

    Args:
        fields: Our names, and the driver's name of each.
    """
    try:
        done = subprocess.run(
            nvidia_smi.query_command(fields), capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return nvidia_smi.parse_answer(fields, done.stdout)


@cache
def _load_fields() -> dict[str, str]:
    for name in _REASONS:
        if query_driver({"slowed_by": name}):
            return {**_LOAD, "slowed_by": name}
    return _LOAD
