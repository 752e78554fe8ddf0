"""Time of one matrix multiplication: a measured grid or a tile model, moved by its roofline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .files import Array, GemmGrid, TileModel

_SHARPNESS = 4.0
"""How abruptly a kernel turns from memory-bound to compute-bound; 4 transfers best between the
nine measured devices (docs/curves.md, leave-one-device-out)."""
_COMPUTE_SHARE = 0.8
_MEMORY_SHARE = 0.85
_FLOOR_S = 2e-6
_BATCHED_COMPUTE_SHARE = 0.6
_BATCHED_MEMORY_SHARE = 0.8
"""What batched products of attention reach at least, from published eager-attention steps."""
_LARGEST_PADDED_TILE = 64.0
_SLICE_DEPTH = 2.0**14
_IDLE_UNSLICED = 3.0
"""cuBLAS cuts the depth of a product into slices where most multiprocessors would idle (split-K):
slices at least so deep, from so many multiprocessors a tile on. Without them fp32 products of less
than a quarter of a wave and 16,384 deep or more were predicted at 1.1 to 1.7 times what NeuSight
measured on H100, V100, T4, P100 and P4; with them at 0.9 to 1.15 (docs/curves.md)."""
_LARGEST_ROWS, _LARGEST_SIDE = 2.0**22, 2.0**18
"""Tokens of a pass, and the widest vocabularies: carried curves keep their order up to there."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The datasheet numbers of one device that a kernel's time scales with, for one dtype."""

    peak_flops: float
    bandwidth_bytes_per_s: float
    operand_bytes: float
    output_bytes: float
    l2_bytes: float
    compute_units: float
    level: float = 1.0
    """Achieved share of peak, relative to the device that the curve was measured on."""

    def gemm_bytes(self, m: Array, n: Array, k: Array, batch: Array) -> Array:
        """Return the bytes that `batch` multiplications move at least."""
        return batch * (self.operand_bytes * (m * k + n * k) + self.output_bytes * m * n)

    def roofline_s(self, flops: Array, size_bytes: Array) -> Array:
        """Return the smooth roofline in seconds: what a typical kernel of this size takes."""
        compute = flops / (_COMPUTE_SHARE * self.level * self.peak_flops)
        memory = size_bytes / (_MEMORY_SHARE * self.bandwidth_bytes_per_s)
        return (compute**_SHARPNESS + memory**_SHARPNESS) ** (1 / _SHARPNESS) + _FLOOR_S

    def floor_s(self, flops: Array, size_bytes: Array) -> Array:
        """Return the physical lower bound in seconds; what fits in L2 need not come from memory."""
        beyond_l2 = np.clip(size_bytes / max(self.l2_bytes, 1.0) - 1, 0, 1)
        return np.maximum(
            flops / self.peak_flops, beyond_l2 * size_bytes / self.bandwidth_bytes_per_s
        )


@dataclass(frozen=True, eq=False)
class GemmShapes:
    """Matrix multiplications (m×k)·(k×n), `batch` of each.

    Compared by identity, so that many devices share what is looked up for them once.
    """

    m: Array
    n: Array
    k: Array
    batch: Array


def grid_gemm_s(grid: GemmGrid, measured: Machine, target: Machine, shapes: GemmShapes) -> Array:
    """Return the seconds of multiplications of these shapes on `target`.

    Inside the grid and on the measured device this interpolates the measured times. Outside the
    grid, for batched operands and on another device, the nearest measured time is moved by the
    ratio of the two rooflines, so that what is bound by bytes scales with bytes. Where that leaves
    a product slower than a larger one, it takes the time of the larger one, to which it is padded.
    """
    time, at_grid = _nearest_measured_s(grid, measured, shapes)
    m, n, k, batch = shapes.m, shapes.n, shapes.k, shapes.batch
    flops = 2 * (batch * m) * n * k
    size_bytes = target.gemm_bytes(m, n, k, batch)
    padding = _rows(shapes) / np.maximum(batch * m, 1.0)
    moved = time * target.roofline_s(flops * padding, size_bytes) / at_grid
    gain = _log_gain_of_padding(grid, measured, target)
    if gain is not None:
        moved = moved * np.exp(_corners(grid, shapes).value(gain))
    # A thin product in the grid fills its pipeline once per tile; batched kernels overlap that.
    overlapped = np.maximum(
        flops * padding / (_BATCHED_COMPUTE_SHARE * target.level * target.peak_flops),
        size_bytes / (_BATCHED_MEMORY_SHARE * target.bandwidth_bytes_per_s),
    )
    moved = np.where(batch > 1, np.minimum(moved, overlapped + _FLOOR_S), moved)
    return np.maximum(moved, target.floor_s(flops, size_bytes))


@lru_cache(maxsize=256)
def _nearest_measured_s(
    grid: GemmGrid, measured: Machine, shapes: GemmShapes
) -> tuple[Array, Array]:
    """Return the seconds measured nearest to these shapes, and what the roofline says there.

    The same for all relatives of a measured device, hence kept.
    """
    inside = (_clamp(_rows(shapes), grid.m), _clamp(shapes.n, grid.n), _clamp(shapes.k, grid.k))
    time = np.exp(interpolate((grid.m, grid.n, grid.k), grid.log_time, inside))
    return time, _one_product_s(measured, *inside)


@lru_cache(maxsize=1024)
def _log_gain_of_padding(grid: GemmGrid, measured: Machine, target: Machine) -> Array | None:
    """Return ln(time as the larger product ÷ own time) at the nodes of the wide grid; None: 0.

    No product is slower than a larger one that it could be padded to, which holds of the measured
    times. Carried ones broke it: what a product with too few tiles loses against the roofline of
    the measured device was carried to one where its bytes decide, and a larger one loses nothing.
    """
    wide, axes = _wide_axes(grid), (grid.m, grid.n, grid.k)
    pairs = list(zip(wide, axes, strict=True))
    nodes = np.ix_(*(np.searchsorted(axis, _clamp(one, axis)) for one, axis in pairs))
    m, n, k = np.ix_(*wide)
    inside = (_clamp(m, grid.m), _clamp(n, grid.n), _clamp(k, grid.k))
    ratio = _one_product_s(target, m, n, k) / _one_product_s(measured, *inside)
    own = padded = grid.log_time[nodes] + np.log(ratio)
    for axis in range(own.ndim):
        from_large = np.flip(padded, axis)
        padded = np.flip(np.minimum.accumulate(from_large, axis), axis)
    return padded - own if np.any(padded < own) else None


def _one_product_s(machine: Machine, m: Array, n: Array, k: Array) -> Array:
    """Return what the roofline says of one product."""
    return machine.roofline_s(2 * m * n * k, machine.gemm_bytes(m, n, k, np.ones(())))


@lru_cache(maxsize=64)
def _wide_axes(grid: GemmGrid) -> tuple[Array, Array, Array]:
    """Return the nodes of the grid, with one for each doubling before and after them."""
    return (
        _widened(grid.m, _LARGEST_ROWS),
        _widened(grid.n, _LARGEST_SIDE),
        _widened(grid.k, _LARGEST_SIDE),
    )


def _widened(axis: Array, most: float) -> Array:
    first, last = float(axis[0]), float(axis[-1])
    before = first / 2.0 ** np.arange(np.ceil(np.log2(max(first, 1.0))), 0, -1)
    after = last * 2.0 ** np.arange(1, np.ceil(np.log2(max(most / last, 1.0))) + 1)
    return np.concatenate([before, axis, after])


def _rows(shapes: GemmShapes) -> Array:
    """Return the rows that are computed: small matrices of a batch each pad to whole tiles.

    One tall matrix pads once.
    """
    rows = shapes.batch * shapes.m
    return rows * np.where(shapes.batch > 1, _padding(shapes.m, _LARGEST_PADDED_TILE), 1.0)


@lru_cache(maxsize=256)
def _corners(grid: GemmGrid, shapes: GemmShapes) -> Corners:
    """Return where shapes lie in the wide grid: the same for all relatives, hence kept."""
    asked = (_rows(shapes), shapes.n, shapes.k)
    axes = _wide_axes(grid)
    m, n, k = (_clamp(one, axis) for one, axis in zip(asked, axes, strict=True))
    return corners_of(axes, (m, n, k))


def tile_gemm_s(tiles: TileModel, target: Machine, shapes: GemmShapes) -> Array:
    """Return the seconds of multiplications of these shapes by counting output tiles and waves."""
    m, n, k, batch = shapes.m, shapes.n, shapes.k, shapes.batch
    flops = 2 * batch * m * n * k
    size_bytes = target.gemm_bytes(m, n, k, batch)
    slices = np.where(batch > 1, 1.0, k / _SLICE_DEPTH)
    return tile_kernel_s(tiles, target, m, n, k, batch, flops, size_bytes, slices=slices)


def tile_kernel_s(
    tiles: TileModel,
    target: Machine,
    m: Array,
    n: Array,
    k: Array,
    batch: Array,
    flops: Array,
    size_bytes: Array,
    *,
    slices: Array | float = 1.0,
) -> Array:
    """Return the seconds of a kernel that computes `batch` m×n outputs with depth k.

    `slices`: into how many the depth may be cut.
    """
    waves = np.ceil(m / tiles.tile) * np.ceil(n / tiles.tile) * batch / target.compute_units
    idle = np.ceil(waves) / waves
    # No more slices than idle multiprocessors, and few where few are.
    useful = np.maximum(np.minimum(slices, (idle / _IDLE_UNSLICED) ** 2), 1.0)
    idle = np.maximum(idle / useful, 1.0)
    waste = idle * _padding(m, tiles.tile) * _padding(n, tiles.tile)
    achieved = tiles.efficiency * target.level * target.peak_flops
    compute = flops / achieved * (1 + tiles.k_half / k) * waste**tiles.wave_exponent
    memory = size_bytes / (_MEMORY_SHARE * target.bandwidth_bytes_per_s)
    return (compute**_SHARPNESS + memory**_SHARPNESS) ** (1 / _SHARPNESS) + _FLOOR_S


def interpolate(axes: tuple[Array, ...], values: Array, points: tuple[Array, ...]) -> Array:
    """Return `values` interpolated linearly in the logarithm of every axis; points lie inside."""
    return corners_of(axes, points).value(values)


@dataclass(frozen=True, eq=False)
class Corners:
    """The nodes around points, as places in a flat table, and the weight of each."""

    index: Array
    """[points, corners]"""
    weights: Array
    """[points, corners]"""
    shape: tuple[int, ...]
    """Of the points."""

    def value(self, values: Array) -> Array:
        """Return `values` interpolated at the points."""
        return (values.ravel()[self.index] * self.weights).sum(axis=-1).reshape(self.shape)


def corners_of(axes: tuple[Array, ...], points: tuple[Array, ...]) -> Corners:
    """Return the nodes around points, which lie inside the axes."""
    shape = np.broadcast_shapes(*(np.shape(point) for point in points))
    strides = np.cumprod([1, *(len(axis) for axis in axes[:0:-1])])[::-1]
    base: Array | int = 0
    corners, weights = np.zeros(1, dtype=int), np.ones((1, 1))
    for axis, point, stride in zip(axes, points, strides.tolist(), strict=True):
        log_point = np.broadcast_to(np.log(point), shape).ravel()
        lower, share = _bracket(np.log(axis), log_point)
        base = base + lower * stride
        step = stride if len(axis) > 1 else 0
        corners = (corners[:, None] + np.array([0, step])).ravel()
        pair = np.stack([1 - share, share])
        weights = (weights[:, None] * pair[None]).reshape(len(corners), -1)
    return Corners((np.asarray(base) + corners[:, None]).T, weights.T, shape)


def _bracket(log_axis: Array, log_point: Array) -> tuple[Array, Array]:
    """Return (index of the node below, share of the way to the next) for every point."""
    if len(log_axis) == 1:
        return np.zeros(len(log_point), dtype=int), np.zeros(len(log_point))
    lower = np.searchsorted(log_axis, log_point, side="right") - 1
    lower = np.minimum(np.maximum(lower, 0), len(log_axis) - 2)
    return lower, (log_point - log_axis[lower]) / (log_axis[lower + 1] - log_axis[lower])


def _clamp(value: Array, axis: Array) -> Array:
    return np.clip(value, axis[0], axis[-1])


def _padding(length: Array, tile: float) -> Array:
    # A product of no rows (a mask that finds nothing) costs its launch, and pads nothing.
    length = np.maximum(length, 1.0)
    return np.ceil(length / tile) * tile / length
