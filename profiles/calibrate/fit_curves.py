"""Fit the efficiency curves: measured kernel tables in, one curve file per accelerator out.

    python -m gpuplan.profiles.calibrate.fit_curves --kernels DIR --out profiles/data/curves
    python -m gpuplan.profiles.calibrate.fit_curves --kernels DIR --check

DIR holds the tables that docs/curves.md names. Reading them needs pyarrow, fitting needs scipy
(both in the `dev` extra); neither is used when gpuplan runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ...catalog.snapshot import load_catalogue
from ...catalog.types import Accelerator
from ..curves.files import CURVE_SCHEMA_VERSION, Array, TileModel
from ..curves.gemm import Machine, tile_kernel_s
from .check_curves import print_accuracy
from .fit_levels import fitted_levels
from .fit_network import fitted_network
from .grids import (
    Table,
    fitted_attention_grids,
    fitted_gemm_grid,
    half_grid_error,
    microseconds,
    read_table,
    robust_sigma,
    rounded,
    select,
)

CURVES_VERSION = "2026.11"

_AIC = (
    "AIConfigurator kernel database (ai-dynamo/aiconfigurator, Apache-2.0), median latency: "
    "GEMM bf16, causal attention forward bf16, NCCL of one node"
)
_NEUSIGHT = (
    "NeuSight operator measurements (sitar-lab/NeuSight, MIT), fp32 without TF32: linear, bmm, "
    "conv, pointwise, softmax, layer norm"
)
_CALIBRATION = (
    "achievable matmul: stas00/ml-engineering (mamf-finder), mila-iqia/milabench; "
    "bandwidth: ProjectPhysX/FluidX3D benchmark table"
)
_GEMM_DTYPES = {"bfloat16": "bf16"}
"""By the name in the tables. Their fp8 rows quantise the activation inside the timed call: at 1,024
columns .25 of peak as timed, .69 for the product alone (H100). What fp8 products take follows from
those in 16 bits (`_relations.json`, fp8_from_16_bits), and the casts are traffic of their own."""
_GEMM_SET_ASIDE = {
    "H200-141GB-SXM": "throttled: .61 of peak at 8192^3 where the same chip at the same power, the"
    " H100, reaches .70 to .80 with the same software in ten pairs of tables",
}
_ATTENTION_SET_ASIDE = {
    ("GB300", 192): "one file of one framework's fallback kernel (triton), .26 of the rate at all"
    " other head dimensions",
}
_TIMER_S = 10e-6
"""What event timing from Python adds to a kernel in the fp32 tables; kernels below ten times
this are left out of the fit."""
_LARGE_BYTES = {"pointwise": 256e6, "norm": 64e6, "softmax": 64e6}
_STREAM_OPS = {
    "pointwise": (
        "add",
        "addu",
        "mul",
        "mulu",
        "div",
        "divu",
        "pow",
        "powu",
        "gelu",
        "relu",
        "tanh",
    ),
    "norm": ("ln",),
    "softmax": ("softmax",),
}
_TWO_INPUTS = ("add", "mul", "div", "pow")


def main(arguments: list[str] | None = None) -> int:
    """Write the curve files, or with `--check` print the accuracy tables; return an exit code."""
    parser = argparse.ArgumentParser(prog="python -m gpuplan.profiles.calibrate.fit_curves")
    parser.add_argument("--kernels", type=Path, required=True, help="folder of kernel tables")
    parser.add_argument("--out", type=Path, help="folder to write curve files into")
    parser.add_argument("--check", action="store_true", help="print held-out accuracy")
    options = parser.parse_args(arguments)
    if options.check:
        print_accuracy(options.kernels)
    if options.out:
        write_curve_files(options.kernels, options.out)
    return 0


def write_curve_files(kernels: Path, out: Path) -> None:
    """Fit every measured accelerator and write one JSON file for each."""
    gemm = read_table(kernels / "gemm_tensor_core.parquet")
    attention = read_table(kernels / "attention_forward_causal_bf16.parquet")
    nccl = read_table(kernels / "nccl_single_node.parquet")
    fp32 = read_table(kernels / "fp32_ops.parquet")
    catalogue = load_catalogue().accelerators
    names = sorted({*gemm["accelerator"], *fp32["accelerator"]})
    for name in names:
        device = catalogue[name]
        record: dict[str, object] = {
            "schema_version": CURVE_SCHEMA_VERSION,
            "accelerator": name,
            "version": CURVES_VERSION,
            "sources": [],
        }
        _add_tensor_core(
            record, device, select(gemm, name), select(attention, name), select(nccl, name)
        )
        _add_fp32(record, device, select(fp32, name))
        text = json.dumps(record, separators=(",", ":"), indent=None)
        # One line per part: a refit shows up as a short diff.
        (out / f"{name}.json").write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")
    _write_shared(kernels, out, catalogue)


def _write_shared(kernels: Path, out: Path, catalogue: Mapping[str, Accelerator]) -> None:
    network = json.loads((out / "_network.json").read_text(encoding="utf-8"))
    network["series"] = fitted_network(
        kernels / "collectives.jsonl", kernels / "more" / "collectives_multi_node.csv"
    )
    levels = {
        "comment": "Achieved shares against a measured relative; written by fit_curves.",
        "sources": [_CALIBRATION],
        "levels": fitted_levels(kernels / "calibration.jsonl", catalogue),
    }
    for name, table in (("_network", network), ("_levels", levels)):
        (out / f"{name}.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def fitted_tiles(
    device: Accelerator, dims: tuple[Array, ...], size_bytes: Array, time_s: Array
) -> TileModel:
    """Return the tile model that fits fp32 kernels of (m, n, k, batch), with held-out error."""
    use = time_s > 10 * _TIMER_S
    m, n, k, batch = (d[use] for d in dims)
    size_bytes, time_s = size_bytes[use], time_s[use]
    flops = 2 * batch * m * n * k
    machine = fp32_machine(device)
    train = np.random.default_rng(0).random(len(time_s)) < 0.5

    def log_error(tiles: TileModel, rows: Array) -> Array:
        predicted = tile_kernel_s(
            tiles, machine, m[rows], n[rows], k[rows], batch[rows], flops[rows], size_bytes[rows]
        )
        return np.log((predicted + _TIMER_S) / time_s[rows])

    held_out = log_error(_best_tiles(lambda t: log_error(t, train)), ~train)
    final = _best_tiles(lambda t: log_error(t, np.ones(len(time_s), dtype=bool)))
    return TileModel(
        final.efficiency, final.tile, final.k_half, final.wave_exponent, robust_sigma(held_out)
    )


def fp32_machine(device: Accelerator) -> Machine:
    """Return the device's fp32 datasheet numbers."""
    return Machine(
        peak_flops=device.peak_flops["fp32"],
        bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s,
        operand_bytes=4,
        output_bytes=4,
        l2_bytes=device.l2_bytes or 0,
        compute_units=device.compute_units or 100,
    )


def fp32_dims(op: str, shapes: Array) -> tuple[tuple[Array, ...], Array]:
    """Return ((m, n, k, batch), bytes) of fp32 kernels from their shapes in the table."""
    if op == "conv":
        batch, c_in, c_out, kernel, size, stride, pad = shapes.T.astype(float)
        out = np.floor((size + 2 * pad - kernel) / stride) + 1
        m, n, k = batch * out**2, c_out, c_in * kernel**2
        size_bytes = 4 * (batch * c_in * size**2 + n * k + m * n)
        return (m, n, k, np.ones_like(m)), size_bytes
    batch, rows, inner, out = shapes.T.astype(float)
    if op == "linear":
        m, batch = batch * rows, np.ones_like(rows)
    else:
        m = rows
    return (m, out, inner, batch), 4 * batch * (m * inner + inner * out + m * out)


def stream_fraction(device: Accelerator, rows: Table, kind: str) -> tuple[float, float] | None:
    """Return (share of the datasheet bandwidth, one sigma) of a kind on large tensors, or None."""
    shares = []
    for op, shape, time_us in zip(rows["op"], rows["shape"], rows["latency_us"], strict=True):
        if op not in _STREAM_OPS[kind]:
            continue
        tensors = 3 if op in _TWO_INPUTS else 2
        size_bytes = 4.0 * tensors * float(np.prod(json.loads(shape)))
        if size_bytes >= _LARGE_BYTES[kind]:
            rate = size_bytes / (float(time_us) * 1e-6 - _TIMER_S)
            shares.append(rate / device.memory_bandwidth_bytes_per_s)
    if len(shares) < 5:
        return None
    middle = float(np.median(shares))
    return middle, robust_sigma(np.log(np.array(shares) / middle))


def preparation_ns_per_element(device: Accelerator) -> float:
    """Return the nanoseconds per element of q, k and v that the measured operation spends first.

    What was timed is an inference engine's attention operation: before the attention kernel it
    rotates q and k and writes k and v to the cache, which reads and writes every 2-byte element.
    """
    share_of_bandwidth = 0.85
    return round(4 / (share_of_bandwidth * device.memory_bandwidth_bytes_per_s) * 1e9, 8)


def _add_tensor_core(
    record: dict, device: Accelerator, gemm: Table, attention: Table, nccl: Table
) -> None:
    if not len(gemm["m"]):
        return
    record["sources"].append(_AIC)
    record["kernel_floor_us"] = round(float(gemm["latency_ms_min"].min()) * 1e3, 2)
    if device.name not in _GEMM_SET_ASIDE:
        record["gemm_grids"] = {}
    for source_dtype, dtype in _GEMM_DTYPES.items():
        if source_dtype in gemm["dtype"] and "gemm_grids" in record:
            m, n, k, log_time = fitted_gemm_grid(gemm, source_dtype)
            record["gemm_grids"][dtype] = {
                **_axes(m=m, n=n, k=k),
                "relative_error": robust_sigma(half_grid_error(log_time, (m, n, k))),
                "time_us": microseconds(log_time),
            }
    grids = [
        grid
        for grid in fitted_attention_grids(attention)
        if (device.name, grid[0]) not in _ATTENTION_SET_ASIDE
    ]
    if grids:
        errors = [
            half_grid_error(log_time, (heads, seq, group))
            for _, heads, seq, group, log_time in grids
        ]
        record["attention_forward"] = {
            "relative_error": robust_sigma(np.concatenate(errors)),
            "preparation_ns_per_element": preparation_ns_per_element(device),
            "grids": {"bf16": [_attention_record(*grid) for grid in grids]},
        }
    record["collectives"] = _collectives(nccl)


def _attention_record(
    head_dim: int, batch_heads: Array, seq: Array, group: Array, t: Array
) -> dict:
    axes = _axes(batch_heads=batch_heads, seq=seq, group=group)
    return {"head_dim": head_dim, **axes, "time_us": microseconds(t)}


def _collectives(rows: Table) -> dict:
    """Return the tables of every collective; 16-bit elements, message size in bytes."""
    tables: dict[str, list] = {}
    errors = []
    names = {"alltoall": "all_to_all"}
    for collective in np.unique(rows["collective"]):
        for ranks in np.unique(rows["num_gpus"]):
            use = (rows["collective"] == collective) & (rows["num_gpus"] == ranks)
            use &= rows["usable"] & (rows["dtype"] == "half")
            if use.sum() < 3:
                continue
            order = np.argsort(rows["message_elements"][use])
            size_bytes = 2.0 * rows["message_elements"][use][order]
            time_s = rows["latency_ms"][use][order] * 1e-3
            middle = (np.log(time_s[:-2]) + np.log(time_s[2:])) / 2
            errors.append(middle - np.log(time_s[1:-1]))
            tables.setdefault(names.get(str(collective), str(collective)), []).append(
                {
                    "ranks": int(ranks),
                    **_axes(size_bytes=size_bytes),
                    "time_us": microseconds(np.log(time_s)),
                }
            )
    return {"relative_error": robust_sigma(np.concatenate(errors)), "tables": tables}


def _add_fp32(record: dict, device: Accelerator, rows: Table) -> None:
    if not len(rows["op"]):
        return
    record["sources"].append(_NEUSIGHT)
    models = {}
    for op, name in (("linear", "linear"), ("bmm", "batched"), ("conv", "conv")):
        use = rows["op"] == op
        if use.any():
            shapes = np.array([json.loads(shape) for shape in rows["shape"][use]])
            dims, size_bytes = fp32_dims(op, shapes)
            tiles = fitted_tiles(device, dims, size_bytes, rows["latency_us"][use] * 1e-6)
            models[name] = {k: rounded(v) for k, v in vars(tiles).items()}
    record["tile_models"] = {"fp32": models}
    memory = {}
    for kind in _STREAM_OPS:
        found = stream_fraction(device, rows, kind)
        if found:
            memory[kind] = {"fraction": rounded(found[0]), "relative_error": rounded(found[1])}
    if memory:
        record["memory"] = memory


def _best_tiles(log_error: Callable[[TileModel], Array]) -> TileModel:
    """Return the tile model with the smallest mean absolute log error."""
    from scipy.optimize import minimize

    def model(tile: float, x: Array) -> TileModel:
        return TileModel(np.exp(x[0]), tile, np.exp(x[1]), 1 / (1 + np.exp(-x[2])), 0.0)

    best: tuple[float, TileModel] | None = None
    for tile in (64.0, 128.0):
        found = minimize(
            lambda x, tile=tile: float(np.mean(np.abs(log_error(model(tile, x))))),
            [-0.2, 3.0, 0.0],
            method="Nelder-Mead",
        )
        if best is None or found.fun < best[0]:
            best = (found.fun, model(tile, found.x))
    assert best is not None
    return best[1]


def _axes(**axes: Array) -> dict[str, list[int]]:
    return {name: [int(x) for x in axis] for name, axis in axes.items()}


if __name__ == "__main__":
    sys.exit(main())
