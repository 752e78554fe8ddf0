"""Where a device's curves come from: its own measurements, or the nearest measured relative.

The rules are data (`data/curves/_relations.json`), one per family of devices, each with its source;
achieved levels that were measured per device stand in `_levels.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...catalog.snapshot import load_catalogue
from ...catalog.types import Accelerator
from .files import CurveFile, embedded_curve_file, measured_accelerators, shared_table

Kind = Literal["gemm", "attention", "fp32", "memory", "collective"]
Basis = Literal["measured", "derived"]
TENSOR_DTYPES = ("bf16", "fp16", "tf32", "fp8")
"""Dtypes of tensor cores, in the order in which one stands in for another."""
_ANOTHER_FAMILY_ERROR = 0.25
"""Without a relative of the family: between the 20 and 30 % that docs/curves.md reports for one
device predicted from another generation or another kind of memory."""


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
    curves: CurveFile
    """The curve file of the measured device."""
    scale: Literal["dtype", "fp32"] = "dtype"
    """Which peak the time scales with."""


def origin_of(
    device: Accelerator, kind: Kind, own: CurveFile | None, *, left_out: bool = False
) -> Origin:
    """Return where this device's kernels of a kind are taken from.

    Args:
        device: The device.
        kind: The kind of kernel.
        own: What was measured on this very device, if anything.
        left_out: Whether nothing that was measured on the device may be used, `own` and levels.
    """
    if own is not None and not left_out and _has(own, kind):
        return Origin("measured", device.name, 1.0, 0.0, "measured on this device", own)
    family = family_of(device)
    rule = family[kind]
    relatives = [r for r in rule["relatives"] if r["name"] != device.name]
    if not relatives:
        return _from_another_family(device, kind)
    relative = _nearest(device, relatives)
    level = rule.get("level", 1.0) * _power_share(device, rule)
    why = f"from {relative}: {family['why']}"
    measured = shared_table("_levels")["levels"].get(kind, {}).get(device.name)
    error = rule["relative_error"]
    if measured and not left_out:
        level, error = measured["level"], min(error, measured["relative_error"])
        relative, why = measured["relative_to"], measured["source"]
    curves = embedded_curve_file(relative)
    return Origin("derived", relative, level, error, why, curves, rule.get("scale", "dtype"))


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


def _from_another_family(device: Accelerator, kind: Kind) -> Origin:
    """Return the nearest measured device when the only relative in the family is left out.

    Of the same vendor, kind of memory and architecture if there is one, nearest in age, then in
    bytes per FLOP.
    """
    catalogue = load_catalogue().accelerators
    names = [name for name in measured_accelerators() if name != device.name]
    others = [catalogue[name] for name in names if _has(embedded_curve_file(name), kind)]

    def distance(other: Accelerator) -> tuple[bool, bool, bool, float, float]:
        ages = (device.launch_year, other.launch_year)
        age = abs(ages[0] - ages[1]) if ages[0] and ages[1] else float("inf")
        balances = [_bytes_per_flop(device), _bytes_per_flop(other)]
        apart = abs(balances[0] - balances[1]) if balances[0] and balances[1] else float("inf")
        other_memory = _memory_class(other) != _memory_class(device)
        other_arch = other.arch.split()[0] != device.arch.split()[0]  # "Blackwell Ultra"
        return other.vendor != device.vendor, other_memory, other_arch, age, apart

    nearest = min(others, key=distance).name
    why = f"from {nearest}: the nearest of the others that were measured"
    curves = embedded_curve_file(nearest)
    return Origin("derived", nearest, 1.0, _ANOTHER_FAMILY_ERROR, why, curves)


def _bytes_per_flop(device: Accelerator) -> float | None:
    peak = device.peak_flops.get("bf16") or device.peak_flops.get("fp16")
    return device.memory_bandwidth_bytes_per_s / peak if peak else None


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
        "gemm": any(dtype in curves.gemm_grids for dtype in TENSOR_DTYPES),
        "attention": any(dtype in curves.attention_grids for dtype in TENSOR_DTYPES),
        "fp32": bool(curves.tile_models),
        "memory": "pointwise" in curves.memory,
        "collective": bool(curves.collectives),
    }[kind]
