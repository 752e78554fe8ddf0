"""Measured kernels → a curve file: grids where enough were measured, constants elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...catalog.types import Accelerator
from ..curves.convolution import Convolution, tensor_core_conv_s
from ..curves.device_curves import DeviceCurves
from ..curves.files import CURVE_SCHEMA_VERSION, Array, TileModel, parsed_curves
from ..curves.gemm import tile_kernel_s
from ..curves.source import CurveSource
from .grids import filled, half_grid_error, microseconds, robust_sigma, rounded
from .schedule import ATTENTION_LEVELS, GEMM_LEVELS, STREAM_KINDS, Axes, Point, Scale

_ENOUGH = 0.5
"""Share of a level's nodes that must be measured; the others are filled in from them."""
UNCHECKED_ERROR = 0.15
"""One sigma where too few points were measured to hold any out (estimate: three times what the
coarsest grids of the embedded devices show)."""
NOISY = 0.25
"""Spread of repeats from which on it is said that something else was running (a rule)."""
_SIGMAS_OF_SPREAD = 2.56
"""The 10th and the 90th percentile of a normal distribution are this many sigmas apart."""
_MOST_NOISE = 3.0
"""One sigma, as a logarithm, beyond which a time says nothing: a factor of twenty either way."""
_FEWEST_HELD_OUT = 4
_FEWEST_POINTS = 4
_LARGE_SHARE = 1 / 8
"""Streams of at least this share of the largest one show the bandwidth."""
_LARGE = 8192.0
_SMALLEST_STREAM_BYTES = 2**18


@dataclass(frozen=True)
class Measured:
    """One point and how long it took."""

    point: Point
    time_s: float
    spread: float
    """(90th − 10th percentile) ÷ median of the repeats."""


def noise_of(results: Sequence[Measured]) -> float:
    """Return the median spread of the repeats of these kernels, as a share of their time."""
    return float(np.median([one.spread for one in results]))


def fastest_s(point: Point, accelerator: Accelerator) -> float:
    """Return the seconds that the datasheet allows at least; 0 where it says nothing.

    What fits in twice the L2 cache need not come from memory.
    """
    peaks = {str(dtype): peak for dtype, peak in accelerator.peak_flops.items()}
    time_s = point.flops / peaks[point.dtype] if point.flops and point.dtype in peaks else 0.0
    if point.part == "stream" and point.size_bytes > 2 * (accelerator.l2_bytes or 0):
        time_s = max(time_s, point.size_bytes / accelerator.memory_bandwidth_bytes_per_s)
    return time_s


def fitted_record(
    accelerator: Accelerator, scale: Scale, results: Sequence[Measured], *, version: str
) -> dict[str, Any]:
    """Return the curve file of these results, without sources; parts that are too few are left out.

    Args:
        accelerator: The device, for its peaks and bandwidth.
        scale: Which levels of nodes were measured.
        results: What was measured, none of it above the peak.
        version: Version of the file.
    """
    record: dict[str, Any] = {
        "schema_version": CURVE_SCHEMA_VERSION,
        "accelerator": accelerator.name,
        "version": version,
        "sources": [],
    }
    floor_s = _floor_s(results)
    if floor_s is not None:
        record["kernel_floor_us"] = rounded(floor_s * 1e6)
    fitted = {
        "gemm_grids": _gemm_grids(accelerator, scale, results),
        "tile_models": _tile_models(accelerator, results),
        **_attention(scale, results),
        "memory": _memory(accelerator, results, floor_s or 0.0),
        "collectives": _collectives(results),
    }
    record |= {name: part for name, part in fitted.items() if part}
    convolutions = _convolutions(accelerator, record, results)
    return record | ({"convolutions": convolutions} if convolutions else {})


def is_usable(record: dict[str, Any]) -> bool:
    """Return whether the file says anything about the device."""
    parts = ("gemm_grids", "attention_forward", "memory", "collectives", "tile_models")
    return any(record.get(part) for part in parts)


def _at_least_noise(error: float, results: Sequence[Measured]) -> float:
    """Return one sigma that is not below what the repeats differ by.

    Few points hold none out, and those that were all slowed agree with one another.
    """
    return max(error, rounded(min(noise_of(results) / _SIGMAS_OF_SPREAD, _MOST_NOISE)))


def _of(results: Sequence[Measured], part: str, dtype: str | None = None) -> list[Measured]:
    return [r for r in results if r.point.part == part and dtype in (None, r.point.dtype)]


def _dtypes(results: Sequence[Measured], part: str) -> list[str]:
    return sorted({r.point.dtype for r in _of(results, part)})


def _floor_s(results: Sequence[Measured]) -> float | None:
    times_s = [r.time_s for r in _of(results, "stream") if r.point.dtype != "optimizer"]
    return min(times_s) if times_s else None


def _gemm_grids(
    accelerator: Accelerator, scale: Scale, results: Sequence[Measured]
) -> dict[str, Any]:
    grids = {}
    for dtype in _dtypes(results, "gemm"):
        times = {r.point.shape: r.time_s for r in _of(results, "gemm", dtype)}
        axes = _best_axes(GEMM_LEVELS[scale], times)
        if axes is None:
            continue
        m, n, k = (np.array(axis, dtype=float) for axis in axes)
        machine = CurveSource(accelerator).machine(dtype)
        dims = (m[:, None, None], n[None, :, None], k[None, None, :])
        work = machine.roofline_s(
            2 * dims[0] * dims[1] * dims[2], machine.gemm_bytes(*dims, np.ones(()))
        )
        log_time, error = _grid(axes, times, np.log(work))
        grids[dtype] = {
            **dict(zip("mnk", map(list, axes), strict=True)),
            "relative_error": _at_least_noise(error, _of(results, "gemm", dtype)),
            "time_us": microseconds(log_time),
        }
    return grids


def _attention(scale: Scale, results: Sequence[Measured]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for part, name in (
        ("attention", "attention_forward"),
        ("attention_backward", "attention_backward"),
    ):
        grids: dict[str, list[dict[str, Any]]] = {}
        errors: list[float] = []
        for dtype in _dtypes(results, part):
            if name == "attention_backward" and dtype not in _grids_of(parts):
                continue  # A backward without its forward is not read.
            for grid, error in _head_dims(scale, _of(results, part, dtype)):
                grids.setdefault(dtype, []).append(grid)
                errors.append(error)
        if grids:
            error = _at_least_noise(rounded(float(np.median(errors))), _of(results, part))
            parts[name] = {"relative_error": error, "grids": grids}
    return parts


def _grids_of(parts: dict[str, Any]) -> dict[str, Any]:
    return parts.get("attention_forward", {}).get("grids", {})


def _head_dims(scale: Scale, results: Sequence[Measured]) -> list[tuple[dict[str, Any], float]]:
    found = []
    for head_dim in sorted({r.point.shape[0] for r in results}):
        times = {r.point.shape[1:]: r.time_s for r in results if r.point.shape[0] == head_dim}
        axes = _best_axes(tuple(level[1:] for level in ATTENTION_LEVELS[scale]), times)
        if axes is None:
            continue
        heads, seq, group = (np.array(axis, dtype=float) for axis in axes)
        work = heads[:, None, None] * seq[None, :, None] ** 2 * np.ones(len(group))
        log_time, error = _grid(axes, times, np.log(work))
        names = dict(zip(("batch_heads", "seq", "group"), map(list, axes), strict=True))
        found.append(({"head_dim": head_dim, **names, "time_us": microseconds(log_time)}, error))
    return found


def _best_axes(levels: Sequence[Axes], times: dict[tuple[int, ...], float]) -> Axes | None:
    """Return the nodes of the finest level of which enough was measured."""
    for axes in reversed(levels):
        nodes = list(product(*axes))
        if sum(node in times for node in nodes) >= _ENOUGH * len(nodes):
            return axes
    return None


def _grid(axes: Axes, times: dict[tuple[int, ...], float], log_work: Array) -> tuple[Array, float]:
    """Return (log seconds on all nodes, held-out error); holes are filled in per work."""
    nodes = [np.log(times[node]) if node in times else np.nan for node in product(*axes)]
    log_time = np.array(nodes).reshape([len(axis) for axis in axes])
    places = tuple(np.array(axis, dtype=float) for axis in axes)
    held_out = half_grid_error(log_time, places)
    held_out = held_out[~np.isnan(held_out)]
    enough = len(held_out) >= _FEWEST_HELD_OUT
    error = robust_sigma(held_out) if enough else UNCHECKED_ERROR
    return filled(log_time - log_work, places) + log_work, error


def _memory(
    accelerator: Accelerator, results: Sequence[Measured], floor_s: float
) -> dict[str, Any]:
    """Return the share of the bandwidth by kind, and how far the form is off at all sizes."""
    bandwidth = accelerator.memory_bandwidth_bytes_per_s
    found = {}
    for kind in STREAM_KINDS:
        mine = _of(results, "stream", kind)
        sizes = np.array([r.point.size_bytes for r in mine])
        times_s = np.array([r.time_s for r in mine])
        use = sizes >= max(_SMALLEST_STREAM_BYTES, _LARGE_SHARE * sizes.max(initial=0.0))
        if not use.any():
            continue
        rates = sizes[use] / np.maximum(times_s[use] - floor_s, 1e-9)
        fraction = min(1.0, float(np.median(rates)) / bandwidth)
        use = sizes >= _SMALLEST_STREAM_BYTES
        log_errors = np.log((floor_s + sizes[use] / (fraction * bandwidth)) / times_s[use])
        error = robust_sigma(log_errors) if use.sum() >= _FEWEST_HELD_OUT else UNCHECKED_ERROR
        error = _at_least_noise(error, mine)
        found[kind] = {"fraction": rounded(fraction), "relative_error": error}
    # The other kinds are read beside pointwise kernels only.
    return found if "pointwise" in found else {}


def _collectives(results: Sequence[Measured]) -> dict[str, Any]:
    tables: dict[str, list[dict[str, Any]]] = {}
    errors: list[float] = []
    for kind in _dtypes(results, "collective"):
        mine = sorted(_of(results, "collective", kind), key=lambda r: r.point.shape)
        for ranks in sorted({r.point.shape[0] for r in mine}):
            rows = [r for r in mine if r.point.shape[0] == ranks]
            if len(rows) < 3:
                continue
            log_time = np.log([r.time_s for r in rows])
            sizes = np.log([r.point.shape[1] for r in rows])
            share = (sizes[1:-1] - sizes[:-2]) / (sizes[2:] - sizes[:-2])
            errors += list(log_time[:-2] * (1 - share) + log_time[2:] * share - log_time[1:-1])
            table = {"ranks": ranks, "size_bytes": [r.point.shape[1] for r in rows]}
            tables.setdefault(kind, []).append(table | {"time_us": microseconds(log_time)})
    if not tables:
        return {}
    error = _at_least_noise(robust_sigma(np.array(errors)), _of(results, "collective"))
    return {"relative_error": error, "tables": tables}


def _tile_models(accelerator: Accelerator, results: Sequence[Measured]) -> dict[str, Any]:
    models: dict[str, Any] = {}
    for part, name in (("gemm", "linear"), ("batched", "batched"), ("convolution", "conv")):
        mine = _of(results, part, "fp32")
        if len(mine) < _FEWEST_POINTS or (name != "linear" and not models):
            continue
        fitted = fitted_tile_model(accelerator, mine)
        models[name] = {key: rounded(value) for key, value in vars(fitted).items()}
        models[name]["relative_error"] = _at_least_noise(models[name]["relative_error"], mine)
    return {"fp32": models} if models else {}


def fitted_tile_model(accelerator: Accelerator, results: Sequence[Measured]) -> TileModel:
    """Return the tile model nearest to these fp32 kernels, with its error on them (one sigma).

    A search over a grid of constants: few points need no more, and gpuplan needs no scipy.
    """
    machine = CurveSource(accelerator).machine("fp32")
    m, n, k, batch = np.array([_as_product(r) for r in results], dtype=float).T
    flops = np.array([r.point.flops for r in results])
    size_bytes = np.array([r.point.size_bytes for r in results])
    log_time = np.log([r.time_s for r in results])
    best: tuple[float, TileModel] | None = None
    for tile, k_half, wave in product((64.0, 128.0), np.geomspace(2, 512, 9), (0, 0.25, 0.5, 1)):
        for efficiency in np.geomspace(0.01, 1.0, 60):
            tiles = TileModel(float(efficiency), tile, float(k_half), float(wave), 0.0)
            times_s = tile_kernel_s(tiles, machine, m, n, k, batch, flops, size_bytes)
            log_errors = np.log(times_s) - log_time
            off = float(np.mean(np.abs(log_errors)))
            if best is None or off < best[0]:
                error = max(robust_sigma(log_errors), 0.01)
                best = off, TileModel(tiles.efficiency, tile, tiles.k_half, wave, error)
    assert best is not None
    return best[1]


def _as_product(result: Measured) -> tuple[float, float, float, float]:
    """Return (m, n, k, batch) of the matrix product that a kernel amounts to."""
    shape = result.point.shape
    if result.point.part == "convolution":
        conv = _convolution(result.point)
        return float(conv.rows), float(conv.columns), float(conv.depth), float(conv.groups)
    m, n, k, *batch = map(float, shape)
    return m, n, k, batch[0] if batch else 1.0


def _convolution(point: Point) -> Convolution:
    batch, c_in, c_out, side, image, stride, groups = (np.asarray(float(x)) for x in point.shape)
    pixels = np.floor(image / stride) ** 2
    facts = np.asarray(point.flops), np.asarray(point.size_bytes)
    return Convolution(batch, c_in, c_out, side**2, pixels, groups, *facts, side)


def _convolutions(
    accelerator: Accelerator, record: dict[str, Any], results: Sequence[Measured]
) -> dict[str, Any]:
    """Return, for dtypes of tensor cores, the rate of convolutions over that of large products."""
    curves = DeviceCurves(accelerator, parsed_curves(record, Path("measured")))
    found = {}
    for dtype in _dtypes(results, "convolution"):
        forward = _of(results, "convolution", dtype)
        if dtype == "fp32" or dtype not in record.get("gemm_grids", {}):
            continue
        if len(forward) < _FEWEST_POINTS - 1:
            continue
        rate = 2 * _LARGE**3 / float(curves.gemm_s(_LARGE, _LARGE, _LARGE, dtype=dtype))

        def log_errors(rows: list[Measured], share: float, rate: float) -> Array:
            machine = curves.machine(cast(str, rows[0].point.dtype))
            predicted = [
                tensor_core_conv_s(_convolution(r.point), machine, gemm_flops_per_s=share * rate)
                for r in rows
            ]
            return np.log(np.array(predicted, dtype=float) / [r.time_s for r in rows])

        shares = np.geomspace(0.02, 1.5, 120)
        off = [np.mean(np.abs(log_errors(forward, s, rate))) for s in shares]
        share = float(shares[int(np.argmin(off))])
        backward = _of(results, "convolution_backward", dtype)
        residuals = log_errors(forward, share, rate)
        slowdown = 1.0
        if backward:
            behind = log_errors(backward, share, rate)
            slowdown = float(np.exp(-np.median(behind)))
            residuals = np.concatenate([residuals, behind + np.log(slowdown)])
        found[dtype] = {
            "share_of_gemm": rounded(share),
            "backward_slowdown": rounded(slowdown),
            "relative_error": _at_least_noise(
                max(robust_sigma(residuals), 0.01), [*forward, *backward]
            ),
        }
    return found
