"""What the NVIDIA driver says of the first visible device: its identity, and its clocks at work."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from typing import Any

from ..nvidia_smi import parse_answer, query_command, slowed_by

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
            told["slowed_by"] = slowed_by(told["slowed_by"]) or []
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
