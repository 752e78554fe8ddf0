"""What the NVIDIA driver says of the first visible device: its identity, and its clocks at work."""

from __future__ import annotations

import csv
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any

_IDENTITY = {
    "driver": "driver_version",
    "power_limit_w": "power.limit",
    "max_sm_clock_mhz": "clocks.max.sm",
}
_LOAD = {
    "sm_clock_mhz": "clocks.sm",
    "temperature_c": "temperature.gpu",
    "power_w": "power.draw",
    "slowed_by": "clocks_throttle_reasons.active",
}
_SLOWED_BY = {
    # Bits of nvmlClocksEventReasons (nvml.h); idle and clocks set by an application are not here.
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_EVERY_S = 5.0


def driver_facts() -> dict[str, Any]:
    """Return driver version, power limit (W) and highest clock (MHz); None where it says none."""
    try:
        done = subprocess.run(
            query_command(_IDENTITY), capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return dict.fromkeys(_IDENTITY)
    return parse_answer(_IDENTITY, done.stdout) or dict.fromkeys(_IDENTITY)


class LoadSampler:
    """Asks for clock, temperature and power now and then, while kernels go on running."""

    def __init__(self) -> None:
        self._asked: subprocess.Popen[str] | None = None
        self._next_s = 0.0

    def poll(self) -> dict[str, Any] | None:
        """Return the answer to an earlier question once it is there; never waits."""
        if self._asked is None:
            if time.monotonic() >= self._next_s:
                self._ask()
            return None
        if self._asked.poll() is None:
            return None
        told = parse_answer(_LOAD, self._asked.communicate()[0])
        self._asked = None
        if told is not None:
            told["slowed_by"] = slowed_by(told["slowed_by"])
        return told

    def _ask(self) -> None:
        self._next_s = time.monotonic() + _EVERY_S
        try:
            self._asked = subprocess.Popen(
                query_command(_LOAD), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            self._next_s = float("inf")


def summary_of_load(samples: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the range of clocks, temperature and power, and all that slowed the device."""
    if not samples:
        return None
    summary: dict[str, Any] = {"samples": len(samples)}
    for name in ("sm_clock_mhz", "temperature_c", "power_w"):
        values = sorted(s[name] for s in samples if isinstance(s.get(name), float))
        if values:
            middle = values[len(values) // 2]
            summary[name] = {"low": values[0], "median": middle, "high": values[-1]}
    reasons = {reason for sample in samples for reason in sample.get("slowed_by") or ()}
    return summary | {"slowed_by": sorted(reasons)}


def query_command(fields: dict[str, str]) -> list[str]:
    """Return the command that asks the driver for these fields of the first visible device."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    asked = ",".join(fields.values())
    return [
        "nvidia-smi",
        f"--id={visible}",
        f"--query-gpu={asked}",
        "--format=csv,noheader,nounits",
    ]


def parse_answer(fields: dict[str, str], text: str) -> dict[str, Any] | None:
    """Return the driver's answer, numbers as numbers; None if it is no such answer.

    >>> parse_answer({"sm_clock_mhz": "clocks.sm", "power_w": "power.draw"}, "1980, [N/A]")
    {'sm_clock_mhz': 1980.0, 'power_w': None}
    """
    rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
    if not rows or len(rows[0]) != len(fields):
        return None
    return {name: _value(text.strip()) for name, text in zip(fields, rows[0], strict=True)}


def slowed_by(bits: Any) -> list[str]:
    """Return in words why the clocks are low, of the driver's bits.

    >>> slowed_by("0x0000000000000044")
    ['power cap', 'hardware thermal slowdown']
    """
    try:
        value = int(str(bits), 16)
    except ValueError:
        return []
    return [words for bit, words in _SLOWED_BY.items() if value & bit]


def _value(text: str) -> float | str | None:
    if text.startswith("[") or text in ("N/A", ""):
        return None
    try:
        return float(text)
    except ValueError:
        return text
