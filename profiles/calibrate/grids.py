"""Tables of measured kernels, and the log-time grids that they are fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..curves.files import Array

Table = dict[str, Array]


_GROUPS = np.array([1, 2, 4, 8, 16, 32, 64], dtype=float)


_RELAXATIONS = 50


def read_table(path: Path) -> Table:
    """Return a parquet table as columns."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(path)
    return {name: np.array(table[name].to_pylist()) for name in table.column_names}


def select(table: Table, accelerator: str) -> Table:
    """Return the rows of one accelerator."""
    rows = table["accelerator"] == accelerator
    return {name: column[rows] for name, column in table.items()}


def fitted_gemm_grid(rows: Table, dtype: str) -> tuple[Array, Array, Array, Array]:
    """Return (m, n, k, log seconds on that grid) for one dtype; holes are filled by FLOPs."""
    use = rows["dtype"] == dtype
    m, n, k = (np.unique(rows[axis][use]).astype(float) for axis in "mnk")
    log_time = np.full((len(m), len(n), len(k)), np.nan)
    at = tuple(
        np.searchsorted(axis, rows[name][use]) for axis, name in ((m, "m"), (n, "n"), (k, "k"))
    )
    log_time[at] = np.log(rows["latency_ms_median"][use].astype(float) * 1e-3)
    flops = np.log(2 * m[:, None, None] * n[None, :, None] * k[None, None, :])
    return m, n, k, filled(log_time - flops, (m, n, k)) + flops


def fitted_attention_grids(rows: Table) -> list[tuple[int, Array, Array, Array, Array]]:
    """Return (head_dim, batch_heads, seq, group, log seconds) for every measured head dimension."""
    grids = []
    for head_dim in np.unique(rows["head_dim"]):
        use = rows["head_dim"] == head_dim
        batch_heads = (rows["batch_size"] * rows["num_heads"])[use].astype(float)
        seq = rows["seq_len"][use].astype(float)
        group = (rows["num_heads"] / rows["num_kv_heads"])[use].astype(float)
        time_s = rows["latency_ms_median"][use].astype(float) * 1e-3
        slowness = np.log(time_s / (batch_heads * seq**2))
        nodes = 2.0 ** np.arange(0, np.ceil(np.log2(batch_heads.max())) + 1)
        seqs = np.unique(seq)
        cell = (_nearest(nodes, batch_heads), np.searchsorted(seqs, seq), _nearest(_GROUPS, group))
        shape = (len(nodes), len(seqs), len(_GROUPS))
        grid = np.full(shape, np.nan)
        flat = np.ravel_multi_index(cell, shape)
        for index in np.unique(flat):
            grid.flat[index] = np.median(slowness[flat == index])
        grid = filled(grid, (nodes, seqs, _GROUPS))
        work = np.log(nodes[:, None, None] * seqs[None, :, None] ** 2)
        grids.append((int(head_dim), nodes, seqs, _GROUPS, grid + work))
    return grids


def robust_sigma(log_errors: Array) -> float:
    """Return one sigma of log errors, 68th percentile of their size: few outliers do not count."""
    return round(float(np.percentile(np.abs(log_errors), 68)), 4)


def half_grid_error(log_values: Array, axes: tuple[Array, ...]) -> Array:
    """Return log errors of the odd half of a grid, each predicted from its even neighbours only."""
    total = np.zeros_like(log_values)
    count = np.zeros_like(log_values)
    for i, axis in enumerate(axes):
        values, position = np.moveaxis(log_values, i, 0), np.log(axis)
        share = ((position[1:-1] - position[:-2]) / (position[2:] - position[:-2])).reshape(
            -1, 1, 1
        )
        np.moveaxis(total, i, 0)[1:-1] += values[:-2] * (1 - share) + values[2:] * share
        np.moveaxis(count, i, 0)[1:-1] += 1
    odd = np.indices(log_values.shape).sum(0) % 2 == 1
    use = odd & (count > 0)
    return total[use] / count[use] - log_values[use]


def filled(values: Array, axes: tuple[Array, ...]) -> Array:
    """Return `values` with every NaN filled in from the known values around it."""
    places = np.stack(np.meshgrid(*(np.log(a) for a in axes), indexing="ij"), -1).reshape(
        -1, len(axes)
    )
    flat = values.ravel().copy()
    known = ~np.isnan(flat)
    for i in np.flatnonzero(~known):
        distance = ((places[known] - places[i]) ** 2).sum(1)
        flat[i] = flat[known][np.argmin(distance)]
    return _smoothed(flat.reshape(values.shape), known.reshape(values.shape))


def _smoothed(values: Array, known: Array) -> Array:
    """Return `values` with every unknown one relaxed towards the mean of its neighbours."""
    for _ in range(_RELAXATIONS):
        padded = np.pad(values, 1, mode="edge")
        total = np.zeros_like(values)
        for axis in range(values.ndim):
            for start in (0, 2):
                window = [slice(1, -1)] * values.ndim
                window[axis] = slice(start, start + values.shape[axis])
                total += padded[tuple(window)]
        values = np.where(known, values, total / (2 * values.ndim))
    return values


def _nearest(nodes: Array, values: Array) -> Array:
    return np.abs(np.log(values)[:, None] - np.log(nodes)[None, :]).argmin(1)


def microseconds(log_time: Array) -> list[float]:
    """Return times in microseconds, four digits each, the last axis fastest."""
    return [float(f"{t:.4g}") for t in np.exp(log_time).ravel() * 1e6]


def rounded(value: float) -> float:
    """Return the value to four digits."""
    return float(f"{value:.4g}")
