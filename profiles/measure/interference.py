"""What else happened while steps were measured: lowered clocks, heat, other processes.

Throttling and contention are reported beside a measurement, never averaged into it.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..measured import Conditions
from ..nvidia_smi import command, parse_answer, query_command, reasons_in, rows_of, slowed_by

SAMPLE_EVERY_S = 0.25
FIRST_SAMPLE_WITHIN_S = 5.0
ASKING_LIMIT_S = 20.0
BUSY_BEFORE_PERCENT = 10
"""A device that computes more than this before the first step computes for somebody else."""
BUSY_CORES_SHARE = 0.10
"""Share of the host's cores that others may use before it counts as contention."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One look at a device; None for what its driver does not tell."""

    clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    busy_percent: float | None = None
    slowed_by: tuple[str, ...] | None = None
    processes: int | None = None
    """That use the device, this one included."""


class Reader(Protocol):
    """Who tells of a device."""

    source: str

    def read(self) -> Sample | None:
        """Return one look; None without an answer."""
        ...


class Watch:
    """Looks at the device and the host while the block runs; `conditions` then says what was."""

    def __init__(self, reader: Reader | None) -> None:
        self._reader = reader
        self._before = reader.read() if reader else None
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._first = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._host = HostUse()

    def __enter__(self) -> Watch:
        self._host.start()
        if self._reader:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._host.stop()
        self._stop.set()
        if self._reader:
            self._thread.join(FIRST_SAMPLE_WITHIN_S)

    def saw_something(self) -> bool:
        """Return whether the device was observed, or cannot be."""
        return self._reader is None or self._first.is_set()

    def conditions(self) -> Conditions:
        """Return what the device and the host were doing besides."""
        host = self._host
        throttled = host.throttled
        others = list(host.contention or ())
        told = self._samples and self._reader is not None
        if told:
            reasons = [s.slowed_by for s in self._samples if s.slowed_by is not None]
            if reasons:
                lowered = dict.fromkeys(reason for found in reasons for reason in found)
                throttled = (*(throttled or ()), *lowered)
            others = [*device_contention(self._before, self._samples), *others]
        last = self._samples[-1] if self._samples else Sample()
        return Conditions(
            throttled=throttled,
            contention=tuple(others) if others or told or host.contention is not None else None,
            clock_mhz=last.clock_mhz,
            max_clock_mhz=last.max_clock_mhz,
            temperature_c=last.temperature_c,
            power_w=last.power_w,
            source=self._reader.source if self._reader and told else host.source,
        )

    def _look(self) -> None:
        assert self._reader is not None
        while not self._stop.is_set():
            sample = self._reader.read()
            if sample is not None and not self._stop.is_set():
                self._samples.append(sample)
            self._first.set()
            self._stop.wait(SAMPLE_EVERY_S)


def device_contention(before: Sample | None, samples: list[Sample]) -> list[str]:
    """Return in words who else used the device."""
    found = []
    others = max((s.processes for s in samples if s.processes is not None), default=1) - 1
    if others > 0:
        found.append(f"{others} other process{'es' if others > 1 else ''} on the device")
    busy = before.busy_percent if before else None
    if busy is not None and busy > BUSY_BEFORE_PERCENT:
        found.append(f"the device was {busy:.0f} % busy before the first step")
    return found


class HostUse:
    """The processor time that other processes took, and whether a container was held back."""

    def __init__(self) -> None:
        self.contention: tuple[str, ...] | None = None
        self.throttled: tuple[str, ...] | None = None
        self.source = "unknown"
        self._start: tuple[float, float | None, float, float | None] | None = None

    def start(self) -> None:
        """Read the counters."""
        self._start = _counters()

    def stop(self) -> None:
        """Read them again, and say what they mean."""
        assert self._start is not None
        wall_s, busy_s, own_s, held = (
            None if now is None or then is None else now - then
            for now, then in zip(_counters(), self._start, strict=True)
        )
        if wall_s and busy_s is not None and own_s is not None:
            self.source = "the host's counters"
            cores, all_cores = max(0.0, busy_s - own_s) / wall_s, os.cpu_count() or 1
            crowded = cores > BUSY_CORES_SHARE * all_cores
            words = f"other processes used {cores:.1f} of {all_cores} cores"
            self.contention = (words,) if crowded else ()
        if held is not None:
            self.throttled = ("the container's processor limit",) if held > 0 else ()


def nvidia_reader(uuid: str) -> Reader | None:
    """Return who tells of the NVIDIA device with this UUID; None where it is not known."""
    for make in (NvmlReader, SmiReader):
        try:
            reader = make(uuid)
            if reader.read() is not None:
                return reader
        except Exception:
            # pynvml raises classes of its own, and without a driver anything may be missing.
            continue
    return None


class NvmlReader:
    """NVML through pynvml (package nvidia-ml-py), where it is installed."""

    source = "nvml"

    def __init__(self, uuid: str) -> None:
        import pynvml  # pyright: ignore[reportMissingImports]

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self) -> Sample | None:
        """Return one look."""
        nvml, handle = self._nvml, self._handle

        def told(ask: Callable[[], Any]) -> Any:
            try:
                return ask()
            except nvml.NVMLError:
                return None

        power_mw = told(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        running = told(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        busy = told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        bits = told(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        sm = nvml.NVML_CLOCK_SM
        return Sample(
            clock_mhz=told(lambda: nvml.nvmlDeviceGetClockInfo(handle, sm)),
            max_clock_mhz=told(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, sm)),
            temperature_c=told(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            power_w=None if power_mw is None else power_mw / 1e3,
            busy_percent=None if busy is None else busy.gpu,
            slowed_by=None if bits is None else reasons_in(bits),
            processes=len(running) if running else None,
        )


class SmiReader:
    """The driver's own command, nvidia-smi."""

    source = "nvidia-smi"
    _FIELDS = {
        "clock_mhz": "clocks.sm",
        "max_clock_mhz": "clocks.max.sm",
        "temperature_c": "temperature.gpu",
        "power_w": "power.draw",
        "busy_percent": "utilization.gpu",
        "slowed_by": "clocks_throttle_reasons.active",
    }

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def read(self) -> Sample | None:
        """Return one look."""
        told = parse_answer(self._FIELDS, self._ask(query_command(self._FIELDS, self._uuid)))
        if told is None:
            return None
        reasons = slowed_by(told.pop("slowed_by"))
        numbers = {name: cell if isinstance(cell, float) else None for name, cell in told.items()}
        running = rows_of(self._ask(command("--query-compute-apps=pid", self._uuid)))
        return Sample(
            **numbers,
            slowed_by=None if reasons is None else tuple(reasons),
            processes=len(running) or None,
        )

    def _ask(self, asked: list[str]) -> str:
        try:
            done = subprocess.run(
                asked, capture_output=True, text=True, timeout=ASKING_LIMIT_S, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout


def _counters() -> tuple[float, float | None, float, float | None]:
    """Return seconds on the wall, of all cores at work and of our own, and the container's."""
    own = os.times()
    return time.monotonic(), _busy_s(), own.user + own.system, _held_back()


def _busy_s() -> float | None:
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, soft_irq = (int(word) for word in words[:7])
    return (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")


def _held_back() -> float | None:
    """Return how often the container had used up its share of the processor."""
    try:
        lines = Path("/sys/fs/cgroup/cpu.stat").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("nr_throttled")]
    return float(found[0]) if found else None
