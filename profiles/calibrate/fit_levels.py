"""Achieved levels of devices without curves of their own, from the calibration table.

Run by `python -m gpuplan.profiles.calibrate.fit_curves`, which writes them to `_levels.json`:
GEMM levels from achievable matmul rates, memory levels from achieved bandwidths.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...catalog.types import Accelerator
from ..curves.files import embedded_curve_file, measured_accelerators
from ..curves.relatives import family_of

_GEMM_ERROR = 0.08
"""What remains of a transfer between one vendor's devices after one factor (docs/curves.md)."""
_OTHER_VENDOR_ERROR = 0.15
"""Estimate: twice that, for a shape that comes from another vendor's kernels."""
_MEMORY_ERROR = 0.06
_STATED_GEMM_LEVELS = {
    "T4": {
        "level": 0.757,
        "relative_to": "A100-80GB-SXM",
        "relative_error": 0.15,
        "source": "DeepBench (baidu-research/DeepBench@da81ba7, CUDA 10.1): 18 fp16 products of"
        " 0.3 TFLOP and more in 0.745 of the time that the power rule gives, 0.55 to 0.65 of peak",
    },
}
"""Of devices that another benchmark measured: by the ratio of its times to the curves'."""
_MATMUL_KINDS = ("matmul_max_achievable", "matmul_milabench_flops")
_STENCIL = "hbm_bandwidth_stencil_LBM"


def fitted_levels(calibration: Path, catalogue: Mapping[str, Accelerator]) -> dict:
    """Return {"gemm": {device: level}, "memory": {…}} with what each is relative to."""
    rows = [json.loads(line) for line in calibration.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["accelerator"] in catalogue]
    return {"gemm": _gemm_levels(rows, catalogue), "memory": _memory_levels(rows, catalogue)}


def _gemm_levels(rows: list[dict], catalogue: Mapping[str, Accelerator]) -> dict:
    shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["kind"] in _MATMUL_KINDS and row["dtype"] == "bf16":
            peak = catalogue[row["accelerator"]].peak_flops["bf16"]
            shares[row["kind"]][row["accelerator"]].append(row["tflops"] * 1e12 / peak)
    levels = {name: level for name, level in _STATED_GEMM_LEVELS.items() if name in catalogue}
    for name in sorted({name for by_name in shares.values() for name in by_name}):
        if name in measured_accelerators() and embedded_curve_file(name).gemm_grids:
            continue
        relative = family_of(catalogue[name])["gemm"]["relatives"][0]["name"]
        # The same tool on both devices: its own way of choosing shapes cancels out.
        ratios = [
            float(np.mean(by_name[name]) / np.mean(by_name[relative]))
            for by_name in shares.values()
            if name in by_name and relative in by_name
        ]
        if ratios:
            source = f"achievable matmul against {relative} by the same tool: " + ", ".join(
                f"{kind} {by_name[name][0]:.2f} of peak"
                for kind, by_name in shares.items()
                if name in by_name
            )
            same = catalogue[name].vendor == catalogue[relative].vendor
            error = _GEMM_ERROR if same else _OTHER_VENDOR_ERROR
            level = float(np.exp(np.mean(np.log(ratios))))
            levels[name] = _level(level, relative, error, source)
    return levels


def _memory_levels(rows: list[dict], catalogue: Mapping[str, Accelerator]) -> dict:
    stencil: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["kind"] == _STENCIL:
            bandwidth = catalogue[row["accelerator"]].memory_bandwidth_bytes_per_s
            stencil[row["accelerator"]].append(row["gbps"] * 1e9 / bandwidth)
    share = {name: float(np.median(values)) for name, values in stencil.items()}
    measured = {n: embedded_curve_file(n).memory for n in measured_accelerators()}
    pointwise = {n: memory["pointwise"].fraction for n, memory in measured.items() if memory}
    over_stencil: dict[str, list[float]] = defaultdict(list)
    for name in pointwise.keys() & share.keys():
        over_stencil[catalogue[name].vendor].append(pointwise[name] / share[name])
    levels = {}
    for name in sorted(share.keys() - pointwise.keys()):
        vendor = catalogue[name].vendor
        if vendor not in over_stencil:
            continue
        relative = family_of(catalogue[name])["memory"]["relatives"][0]["name"]
        fraction = min(share[name] * float(np.median(over_stencil[vendor])), 0.95)
        source = f"FluidX3D streams at {share[name]:.2f} of the datasheet bandwidth"
        levels[name] = _level(fraction / pointwise[relative], relative, _MEMORY_ERROR, source)
    return levels


def _level(level: float, relative_to: str, error: float, source: str) -> dict:
    return {
        "level": round(level, 3),
        "relative_to": relative_to,
        "relative_error": error,
        "source": source,
    }
