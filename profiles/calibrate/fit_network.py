"""Fit the network curve: collectives measured over several nodes in, `_network.json` out.

Run by `python -m gpuplan.profiles.calibrate.fit_curves`; docs/curves.md describes the form.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..curves.files import Array

_SMALLEST_BUS_BYTES_PER_S = 5e8
"""Slower points are rounded to two figures in the sources."""
_FEWEST_POINTS = 6
COLLECTIVES_FITTED = ("all_reduce", "all_gather", "reduce_scatter")
"""An all-to-all sends every rank's own rows, and no ring."""
Series = tuple[str, int, str, str, str]
"""(collective, ranks, system, network, source)."""


def fitted_network(*tables: Path) -> list[dict]:
    """Return latency and rate of every measured multi-node series, as records.

    Args:
        tables: JSON Lines or CSV files of nccl-tests points.
    """
    fits = []
    for (collective, ranks, system, network, source), points in _series(tables).items():
        size_bytes, bus_bytes_per_s = np.array(sorted(points)).T
        keep = bus_bytes_per_s >= _SMALLEST_BUS_BYTES_PER_S
        if keep.sum() < _FEWEST_POINTS:
            continue
        passes = 2 if collective == "all_reduce" else 1
        sent_bytes = passes * (ranks - 1) / ranks * size_bytes[keep]
        time_s = sent_bytes / bus_bytes_per_s[keep]
        latency_s, peak, sigma = _fit(sent_bytes, time_s)
        fits.append(
            {
                "collective": collective,
                "ranks": ranks,
                "system": system,
                "network": network,
                "latency_us": round(latency_s * 1e6, 1),
                "peak_bus_bytes_per_s": float(f"{peak:.3g}"),
                "relative_error": round(sigma, 3),
                "source": source,
            }
        )
    return fits


def _series(tables: Iterable[Path]) -> dict[Series, list[tuple[float, float]]]:
    series: dict[Series, list[tuple[float, float]]] = defaultdict(list)
    for row in (row for table in tables for row in _rows(table)):
        known = all(row[k] for k in ("gpus", "size_bytes", "busbw_gbps"))
        if known and int(row["nodes"] or 1) > 1 and row["collective"] in COLLECTIVES_FITTED:
            system, network, source = (
                str(row[name]) for name in ("instance_or_system", "network", "source")
            )
            key = (str(row["collective"]), int(row["gpus"]), system, network, source)
            series[key].append((float(row["size_bytes"]), float(row["busbw_gbps"]) * 1e9))
    return series


def _rows(table: Path) -> list[dict[str, Any]]:
    text = table.read_text(encoding="utf-8")
    if table.suffix == ".csv":
        return list(csv.DictReader(text.splitlines()))
    return [json.loads(line) for line in text.splitlines()]


def _fit(sent_bytes: Array, time_s: Array) -> tuple[float, float, float]:
    """Return (latency, rate, sigma) of t = latency + sent / rate, errors taken relatively."""
    from scipy.optimize import least_squares

    def log_error(x: Array) -> Array:
        latency_s, rate = np.exp(x)
        return np.log((latency_s + sent_bytes / rate) / time_s)

    fastest = (sent_bytes / time_s).max()
    start = np.log([np.clip(0.7 * time_s.min(), 2e-6, 2e-3), fastest])
    lower, upper = np.log([1e-6, 0.5 * fastest]), np.log([1e-2, 3 * fastest])
    found = least_squares(log_error, start, loss="soft_l1", bounds=(lower, upper))
    latency_s, rate = np.exp(found.x)
    sigma = float(np.sqrt(np.mean(log_error(found.x) ** 2)))
    return float(latency_s), float(rate), sigma
