"""Where a device's curves come from: its own measurements, or the nearest measured relative.

The rules are data (`data/curves/_relations.json`), one per family of devices, each with its source;
achieved levels that were measured per device stand in `_levels.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..catalog.types import Accelerator
from .curve_files import CurveFile, embedded_curve_file, measured_accelerators, shared_table

Kind = Literal["gemm", "attention", "fp32", "memory", "collective"]
Basis = Literal["measured", "derived"]


@dataclass(frozen=True)
class Origin:
    """The measured device that one kind of kernel is taken from, and how far to trust it."""

    basis: Basis
    measured_on: str
    level: float
    """Achieved share of peak relative to `measured_on`."""
    relative_error: float
    """One sigma; for "measured" the curve file's own, given here as 0."""
    why: str
    scale: Literal["dtype", "fp32"] = "dtype"
    """Which peak the time scales with."""

    @property
    def curves(self) -> CurveFile:
        """The curve file of the measured device."""
        return embedded_curve_file(self.measured_on)


def origin_of(device: Accelerator, kind: Kind) -> Origin:
    """Return where this device's kernels of a kind are taken from."""
    if device.name in measured_accelerators() and _has(embedded_curve_file(device.name), kind):
        return Origin("measured", device.name, 1.0, 0.0, "measured on this device")
    family = family_of(device)
    rule = family[kind]
    relative = _nearest(device, rule["relatives"])
    level = rule.get("level", 1.0) * _power_share(device, rule)
    why = f"from {relative}: {family['why']}"
    measured = shared_table("_levels")["levels"].get(kind, {}).get(device.name)
    error = rule["relative_error"]
    if measured:
        level, error = measured["level"], min(error, measured["relative_error"])
        relative, why = measured["relative_to"], measured["source"]
    return Origin("derived", relative, level, error, why, rule.get("scale", "dtype"))


def family_of(device: Accelerator) -> dict:
    """Return the first family rule that the device matches; the last one matches everything."""
    for rule in shared_table("_relations")["families"]:
        match = rule["match"]
        if (
            match.get("vendor", device.vendor) == device.vendor
            and device.arch in match.get("arch", [device.arch])
            and _memory_class(device) in match.get("memory", [_memory_class(device)])
        ):
            return rule
    raise LookupError("the last family must match everything")


def _power_share(device: Accelerator, rule: dict) -> float:
    """Return the share of its clock that a power-limited card keeps under matrix work."""
    limit = rule.get("watts_per_tflops_limit")
    peak = _limited_peak(device, rule.get("limited_dtype", "16bit"))
    if limit is None or device.tdp_w is None or peak is None:
        return 1.0
    return min(1.0, device.tdp_w / (peak * 1e-12) / limit) ** rule["power_exponent"]


def _limited_peak(device: Accelerator, dtype: str) -> float | None:
    peaks = device.peak_flops
    return peaks.get("fp32") if dtype == "fp32" else peaks.get("bf16", peaks.get("fp16"))


def _nearest(device: Accelerator, relatives: list[dict]) -> str:
    """Return the relative whose bytes per FLOP are nearest to the device's."""
    peak = device.peak_flops.get("bf16") or device.peak_flops.get("fp16")
    if len(relatives) == 1 or peak is None:
        return relatives[0]["name"]
    balance = device.memory_bandwidth_bytes_per_s / peak
    return min(relatives, key=lambda r: abs(r["bytes_per_flop"] / balance - 1))["name"]


def _memory_class(device: Accelerator) -> str:
    return "GDDR" if device.memory_bandwidth_bytes_per_s and _is_gddr(device) else "HBM"


def _is_gddr(device: Accelerator) -> bool:
    return "GDDR" in (device.memory_type or "")


def _has(curves: CurveFile, kind: Kind) -> bool:
    return {
        "gemm": bool(curves.gemm_grids),
        "attention": bool(curves.attention_grids),
        "fp32": bool(curves.tile_models),
        "memory": bool(curves.memory),
        "collective": bool(curves.collectives),
    }[kind]
