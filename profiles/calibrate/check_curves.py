"""Accuracy of the fitted curves: held-out halves of each grid, and one device from another.

Printed by `python -m gpuplan.profiles.calibrate.fit_curves --kernels DIR --check`; the
numbers stand in docs/curves.md, and the typed errors of `_relations.json` come from the second
table.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..curves.attention import AttentionShape, forward_attention_s
from ..curves.device_curves import curves_for
from ..curves.files import (
    Array,
    AttentionGrid,
    GemmGrid,
    embedded_curve_file,
    measured_accelerators,
)
from ..curves.gemm import GemmShapes, grid_gemm_s
from ..curves.source import measured_device
from .grids import Table, fitted_attention_grids, half_grid_error, read_table, select

_GEMM_PAIRS = (
    ("A100-80GB-SXM", "H100-80GB-SXM"),
    ("H100-80GB-SXM", "A100-80GB-SXM"),
    ("B200-180GB-SXM", "H100-80GB-SXM"),
    ("B200-180GB-SXM", "GB200"),
    ("GB300", "GB200"),
    ("B300", "B200-180GB-SXM"),
    ("L40S", "A100-80GB-SXM"),
    ("L40S", "RTX-PRO-6000"),
)
_ATTENTION_PAIRS = (
    ("H200-141GB-SXM", "H100-80GB-SXM"),
    ("A100-80GB-SXM", "H100-80GB-SXM"),
    ("GB200", "H100-80GB-SXM"),
    ("GB300", "GB200"),
    ("L40S", "A100-80GB-SXM"),
    ("L40S", "RTX-PRO-6000"),
)


def print_accuracy(kernels: Path) -> None:
    """Print both tables as Markdown."""
    _print_held_out()
    _print_attention(kernels)
    _print_transfer()


def _print_held_out() -> None:
    print("| GEMM, half of the grid held out, MAPE % | bf16, training shapes | bf16, all |")
    print("|---|---|---|")
    for name in measured_accelerators():
        curves = embedded_curve_file(name)
        if not curves.gemm_grids:
            continue
        bf16 = curves.gemm_grids["bf16"]
        cells = [_half_grid_mape(bf16, training=True), _half_grid_mape(bf16, training=False)]
        print(f"| {name} | {' | '.join(cells)} |")


def _print_attention(kernels: Path) -> None:
    rows = read_table(kernels / "attention_forward_causal_bf16.parquet")
    print("\n| attention, half of the points held out, MAPE % | all | S ≥ 1024 and ≥ 0.1 ms |")
    print("|---|---|---|")
    for name in sorted(set(rows["accelerator"])):
        own = select(rows, name)
        train = np.random.default_rng(0).random(len(own["seq_len"])) < 0.5
        fitted = fitted_attention_grids({k: column[train] for k, column in own.items()})
        grids = tuple(AttentionGrid(*grid) for grid in fitted)
        test = {k: column[~train] for k, column in own.items()}
        error = _attention_error(grids, test)
        large = (test["seq_len"] >= 1024) & (test["latency_ms_median"] >= 0.1)
        print(f"| {name} | {_mape(error)} | {_mape(error[large])} |")


def _attention_error(grids: tuple[AttentionGrid, ...], rows: Table) -> Array:
    """Return log errors of measured points predicted from `grids`."""
    names = ("batch_size", "num_heads", "num_kv_heads", "seq_len", "seq_len", "head_dim")
    batch, heads, kv_heads, seq_q, seq_kv, head_dim = (rows[n].astype(float) for n in names)
    predicted = np.empty_like(batch)
    for dim in np.unique(head_dim):
        use = head_dim == dim
        dims = (x[use] for x in (batch, heads, kv_heads, seq_q, seq_kv, head_dim))
        predicted[use] = forward_attention_s(grids, AttentionShape(*dims, causal=True))
    return np.log(predicted / (rows["latency_ms_median"].astype(float) * 1e-3))


def _print_transfer() -> None:
    print("\n| one device from another, MAPE % | as predicted | after one factor | that factor |")
    print("|---|---|---|---|")
    for target, source in _GEMM_PAIRS:
        error = _gemm_transfer(target, source, "bf16")
        print(f"| GEMM bf16 {target} ← {source} | {_transfer_cells(error)} |")
    for target, source in _ATTENTION_PAIRS:
        cells = _transfer_cells(_attention_transfer(target, source))
        print(f"| attention {target} ← {source} | {cells} |")


def _gemm_transfer(target: str, source: str, dtype: str) -> Array:
    """Return log errors at training shapes of `target`'s times predicted from `source`."""
    grid, own = (embedded_curve_file(name).gemm_grids[dtype] for name in (source, target))
    m, n, k = np.meshgrid(own.m, own.n, own.k, indexing="ij")
    machines = [curves_for(measured_device(name)).machine(dtype) for name in (source, target)]
    shapes = GemmShapes(m, n, k, np.ones(()))
    predicted = grid_gemm_s(grid, machines[0], machines[1], shapes)
    return (np.log(predicted) - own.log_time)[_training_shapes(own)]


def _attention_transfer(target: str, source: str) -> Array:
    errors = []
    by_dim = {g.head_dim: g for g in embedded_curve_file(source).attention_grids["bf16"]}
    ratio = measured_device(source).peak_flops["bf16"] / measured_device(target).peak_flops["bf16"]
    for own in embedded_curve_file(target).attention_grids["bf16"]:
        grid = by_dim.get(own.head_dim)
        if grid is None:
            continue
        heads, seq, group = np.meshgrid(own.batch_heads, own.seq, own.group, indexing="ij")
        dims = (np.ones(()), heads, heads / group, seq, seq, np.full(seq.shape, own.head_dim))
        shape = AttentionShape(*dims, causal=True)
        predicted = forward_attention_s((grid,), shape) * ratio
        use = (seq >= 1024) & (own.log_time > np.log(1e-4))
        errors.append((np.log(predicted) - own.log_time)[use])
    return np.concatenate(errors)


def _half_grid_mape(grid: GemmGrid, *, training: bool) -> str:
    log_time = grid.log_time
    if training:
        keep = (grid.m >= 2048, grid.n >= 1024, grid.k >= 1024)
        log_time = log_time[np.ix_(*keep)]
        return _mape(half_grid_error(log_time, (grid.m[keep[0]], grid.n[keep[1]], grid.k[keep[2]])))
    return _mape(half_grid_error(log_time, (grid.m, grid.n, grid.k)))


def _training_shapes(grid: GemmGrid) -> Array:
    m, n, k = np.meshgrid(grid.m, grid.n, grid.k, indexing="ij")
    return (m >= 2048) & (n >= 1024) & (k >= 1024)


def _transfer_cells(error: Array) -> str:
    factor = np.median(error)
    return f"{_mape(error)} | {_mape(error - factor)} | {np.exp(-factor):.2f}"


def _mape(log_error: Array) -> str:
    return f"{100 * float(np.mean(np.abs(np.expm1(log_error)))):.1f}"
