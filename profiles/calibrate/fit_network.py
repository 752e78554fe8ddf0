"""Fit the network curve: collectives measured over several nodes in, `_network.json` out.

Run by `python -m gpuplan.profiles.calibrate.fit_curves`; docs/curves.md describes the form.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from ..curves.files import Array

_SMALLEST_BUS_BYTES_PER_S = 5e8
"""Slower points are rounded to two figures in the sources."""
_FEWEST_POINTS = 6
Series = tuple[str, int, str, str, str]
"""(collective, ranks, system, network, source)."""


def fitted_network(collectives: Path) -> list[dict]:
    """Return latency, peak and half-size of every measured multi-node series, as records."""
    fits = []
    for (collective, ranks, system, network, source), points in _series(collectives).items():
        size_bytes, bus_bytes_per_s = np.array(sorted(points)).T
        keep = bus_bytes_per_s >= _SMALLEST_BUS_BYTES_PER_S
        if keep.sum() < _FEWEST_POINTS:
            continue
        passes = 2 if collective == "all_reduce" else 1
        sent_bytes = passes * (ranks - 1) / ranks * size_bytes[keep]
        time_s = sent_bytes / bus_bytes_per_s[keep]
        latency_s, peak, half_bytes, sigma = _fit(size_bytes[keep], sent_bytes, time_s)
        fits.append(
            {
                "collective": collective,
                "ranks": ranks,
                "system": system,
                "network": network,
                "latency_us": round(latency_s * 1e6, 1),
                "peak_bus_bytes_per_s": float(f"{peak:.3g}"),
                "half_peak_at_bytes": float(f"{half_bytes:.3g}"),
                "relative_error": round(sigma, 3),
                "source": source,
            }
        )
    return fits


def _series(collectives: Path) -> dict[Series, list[tuple[float, float]]]:
    series: dict[Series, list[tuple[float, float]]] = defaultdict(list)
    for line in collectives.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if (row["nodes"] or 1) > 1 and row["gpus"] and row["size_bytes"] and row["busbw_gbps"]:
            key = tuple(
                row[k] for k in ("collective", "gpus", "instance_or_system", "network", "source")
            )
            series[key].append((row["size_bytes"], row["busbw_gbps"] * 1e9))
    return series


def _fit(size_bytes: Array, sent_bytes: Array, time_s: Array) -> tuple[float, float, float, float]:
    """Return (latency, peak rate, half-peak size, sigma) of t = latency + sent/peak·(1+√(h/V))."""
    from scipy.optimize import least_squares

    def log_error(x: Array) -> Array:
        latency_s, peak, half_bytes = np.exp(x)
        shape = 1 + np.sqrt(half_bytes / size_bytes)
        return np.log((latency_s + sent_bytes / peak * shape) / time_s)

    rate = (sent_bytes / time_s).max()
    start = np.log([np.clip(0.7 * time_s.min(), 2e-6, 2e-3), 1.1 * rate, 3e7])
    lower = np.log([1e-6, rate, 1e5])
    found = least_squares(
        log_error, start, loss="soft_l1", bounds=(lower, np.log([3e-3, 3 * rate, 1e9]))
    )
    latency_s, peak, half_bytes = np.exp(found.x)
    sigma = float(np.sqrt(np.mean(log_error(found.x) ** 2)))
    return float(latency_s), float(peak), float(half_bytes), sigma
