"""Kernel times on one accelerator: measured curves, or those of its nearest measured relative.

    curves = curves_for(load_catalogue().accelerators["H100-80GB-SXM"])
    curves.gemm_s(8192, 4096, 4096, dtype="bf16")

All times are in seconds, without the host's launch cost; arguments are numbers or arrays that
broadcast. What is measured, what is derived and how well both do is in docs/curves.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from ..catalog.errors import UsageError
from ..catalog.types import Accelerator, Dtype
from .curve_attention import (
    BACKWARD_FLOPS_OVER_FORWARD,
    BACKWARD_OVER_FORWARD,
    forward_attention_flops,
    forward_attention_s,
)
from .curve_collectives import Collective, collective_table_s
from .curve_conv import Convolution, tensor_core_conv_s, tiled_conv_s
from .curve_files import Array, GemmGrid, TileModel, shared_table
from .curve_gemm import Machine, grid_gemm_s, tile_gemm_s
from .curve_relations import Basis, Kind, Origin, origin_of

StreamKind = Literal["pointwise", "norm", "softmax", "copy", "embedding", "optimizer"]
CurveKind = Literal["gemm", "conv", "attention", "memory_bound", "collective"]
GEMM_DTYPES: tuple[Dtype, ...] = ("fp32", "tf32", "fp16", "bf16", "fp8")
_OPERAND_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
_OUTPUT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2}
_TYPICAL_FLOOR_S = 2.5e-6
"""Shortest kernel where it is not measured: the middle of the measured 1.6 to 3.2 µs."""
_TYPICAL_UNITS = 100
_LARGE = 8192.0
_VECTOR_SHARE = 16
"""Matrix units over vector units, where no fp32 peak is known."""


@dataclass(frozen=True)
class DeviceCurves:
    """Kernel times of one accelerator; make it with `curves_for`."""

    device: Accelerator

    @property
    def accelerator(self) -> str:
        """Name of the accelerator."""
        return self.device.name

    @property
    def basis(self) -> Basis:
        """Whether its matrix multiplications were measured on this device or derived."""
        return self.basis_of("gemm", "bf16")

    def supports(self, dtype: str) -> bool:
        """Return whether the device multiplies matrices in this dtype.

        tf32 counts as supported wherever fp32 is: without tf32 units torch runs plain fp32.
        """
        return self._native(dtype) in self.device.peak_flops

    def basis_of(self, kind: CurveKind, dtype: str = "bf16") -> Basis:
        """Return "measured" or "derived" for a kind of kernel in a dtype."""
        origin = self._origin(kind, dtype)
        converted = kind in ("gemm", "attention") and self._is_converted(kind, dtype)
        unmeasured_conv = kind == "conv" and "conv" not in self._tile_models(origin)
        return "derived" if converted or unmeasured_conv else origin.basis

    def relative_of(self, kind: CurveKind, dtype: str = "bf16") -> str:
        """Return the accelerator whose measurements are used (its own name if measured)."""
        return self._origin(kind, dtype).measured_on

    def relative_error(self, kind: CurveKind, dtype: str = "bf16") -> float:
        """Return one sigma of the relative error of a predicted kernel time."""
        origin = self._origin(kind, dtype)
        own = self._interpolation_error(kind, dtype, origin)
        extra = 0.0
        if kind == "attention" and self._native(dtype) in ("fp32", "tf32"):
            extra = shared_table("_relations")["fp32_attention"]["relative_error"]
        if kind == "conv" and self._native(dtype) != "fp32":
            extra = shared_table("_relations")["tensor_core_convolution"]["relative_error"]
        return float(np.sqrt(own**2 + origin.relative_error**2 + extra**2))

    def gemm_s(
        self, m: ArrayLike, n: ArrayLike, k: ArrayLike, *, batch: ArrayLike = 1, dtype: str
    ) -> Array:
        """Return the seconds of `batch` multiplications (m×k)·(k×n).

        Raises:
            UsageError: The device does not multiply in this dtype.
        """
        native = self._checked(dtype)
        m, n, k, batch = _arrays(m, n, k, batch)
        origin = self._origin("gemm", native)
        if native == "fp32":
            op = "linear" if np.all(batch == 1) else "batched"
            machine = self.machine(native, origin.level)
            return tile_gemm_s(self._tiles(origin, op), machine, m, n, k, batch)
        grid, grid_dtype = self._grid(origin, native)
        reference = DeviceCurves(measured_device(origin.measured_on)).machine(grid_dtype)
        target = self.machine(native, origin.level)
        time = grid_gemm_s(grid, reference, target, m, n, k, batch)
        return time * _misalignment(m, n, k, batch)

    def conv_s(
        self,
        batch: ArrayLike,
        in_channels: ArrayLike,
        out_channels: ArrayLike,
        kernel_elements: ArrayLike,
        out_pixels: ArrayLike,
        groups: ArrayLike = 1,
        *,
        flops: ArrayLike,
        bytes: ArrayLike,
        dtype: str,
        phase: Literal["forward", "backward"] = "forward",
    ) -> Array:
        """Return the seconds of a convolution.

        `flops` and `bytes` are those of the whole call: for `phase` "backward" both gradients.
        torch runs fp32 convolutions in tf32 unless told otherwise: ask for that dtype then.
        """
        native = self._checked(dtype)
        conv = Convolution(
            *_arrays(batch, in_channels, out_channels, kernel_elements, out_pixels, groups),
            *_arrays(flops, bytes),
        )
        origin = self._origin("conv", native)
        machine = self.machine(native, origin.level)
        if native == "fp32":
            return tiled_conv_s(conv, self._tiles(origin, "conv"), machine)
        facts = shared_table("_relations")["tensor_core_convolution"]
        vector_flops = self.device.peak_flops.get("fp32", machine.peak_flops / _VECTOR_SHARE)
        time = tensor_core_conv_s(
            conv,
            machine,
            gemm_flops_per_s=facts["share_of_gemm"] * self._large_gemm_rates[native],
            vector_flops_per_s=vector_flops,
        )
        return time * (facts["backward_slowdown"] if phase == "backward" else 1.0)

    def attention_s(
        self,
        batch: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        seq_q: ArrayLike,
        seq_kv: ArrayLike,
        head_dim: ArrayLike,
        *,
        causal: bool,
        dtype: str,
        backward: bool = False,
        flops: ArrayLike | None = None,
    ) -> Array:
        """Return the seconds of fused attention.

        `flops`: the FLOPs of this call where a mask leaves less than `causal` says (sliding
        windows), the backward counted as five products to the forward's two. None: not less.
        """
        native = self._checked(dtype)
        if native == "fp8":  # fp8 recipes keep attention in 16 bits.
            native = "bf16"
        batch, heads, kv_heads, seq_q, seq_kv, head_dim = _arrays(
            batch, heads, kv_heads, seq_q, seq_kv, head_dim
        )
        nominal = forward_attention_flops(batch, heads, seq_q, seq_kv, head_dim, causal)
        if native in ("fp32", "tf32"):
            time = self._plain_attention_s(batch * heads, seq_q, seq_kv, head_dim, causal, native)
        else:
            origin = self._origin("attention", native)
            grids = origin.curves.attention_grids["bf16"]
            there = forward_attention_s(
                grids, batch, heads, kv_heads, seq_q, seq_kv, head_dim, causal
            )
            time = there * self._attention_ratio(origin, native)
        if backward:
            time, nominal = time * BACKWARD_OVER_FORWARD, nominal * BACKWARD_FLOPS_OVER_FORWARD
        share = 1.0 if flops is None else np.asarray(flops, dtype=float) / nominal
        return np.maximum(time * np.minimum(share, 1.0), self._floor_s)

    def memory_bound_s(
        self, bytes: ArrayLike, *, kind: StreamKind = "pointwise", dtype: str = "fp32"
    ) -> Array:
        """Return the seconds of a kernel that streams `bytes` (reads and writes) once."""
        del dtype  # The bytes already say it; measured fractions do not depend on it.
        (size_bytes,) = _arrays(bytes)
        rate = self.memory_fraction(kind) * self.device.memory_bandwidth_bytes_per_s
        return self._floor_s + size_bytes / rate

    def memory_fraction(self, kind: StreamKind = "pointwise") -> float:
        """Return the share of the datasheet bandwidth that a kind of kernel reaches."""
        alias = shared_table("_relations")["stream_kinds"].get(kind)
        if alias:
            return self.memory_fraction(alias["as"]) * alias["factor"]
        origin = self._origin("memory_bound", "fp32")
        measured = origin.curves.memory
        fraction = measured[kind].fraction if kind in measured else measured["pointwise"].fraction
        return fraction * origin.level

    def collective_s(
        self,
        kind: Collective,
        bytes_total: ArrayLike,
        ranks: int,
        *,
        link_bytes_per_s: float | None = None,
    ) -> Array:
        """Return the seconds of a collective among `ranks` accelerators of one node.

        Args:
            kind: Which collective.
            bytes_total: The whole buffer: gathered output of all_gather, input of the others.
            ranks: Accelerators taking part.
            link_bytes_per_s: The node's link, one direction per accelerator, where the instance
                states another than the device's own.
        """
        (size_bytes,) = _arrays(bytes_total)
        if ranks <= 1:
            return np.zeros_like(size_bytes)
        origin = self._origin("collective", "bf16")
        speed_up = origin.level * self._link_ratio(origin, link_bytes_per_s)
        return collective_table_s(origin.curves.collectives[kind], size_bytes, ranks, speed_up)

    def _attention_ratio(self, origin: Origin, dtype: Dtype) -> float:
        """Return this device's time over that of the measured one, by the peak that binds."""
        measured = measured_device(origin.measured_on).peak_flops
        here, there = self.device.peak_flops[dtype], measured["bf16"]
        if origin.scale == "fp32":
            here, there = self.device.peak_flops["fp32"], measured["fp32"]
        return there / (here * origin.level)

    def _plain_attention_s(
        self,
        batch_heads: Array,
        seq_q: Array,
        seq_kv: Array,
        head_dim: Array,
        causal: bool,
        dtype: Dtype,
    ) -> Array:
        """Return forward seconds of a fused kernel of fp32 tensors: a share of the GEMM rate."""
        share = shared_table("_relations")["fp32_attention"]["share_of_gemm"]
        flops = forward_attention_flops(batch_heads, np.ones(()), seq_q, seq_kv, head_dim, causal)
        return flops / (share * self._large_gemm_rates[dtype])

    def _checked(self, dtype: str) -> Dtype:
        native = self._native(dtype)
        if native in GEMM_DTYPES and native in self.device.peak_flops:
            return native
        known = [d for d in GEMM_DTYPES if d in self.device.peak_flops]
        raise UsageError(
            f"{self.accelerator} does not multiply matrices in {dtype}.",
            fix=f"use one of {', '.join(known) or 'no dtype: its peak is not known'}",
        )

    def _native(self, dtype: str) -> Dtype:
        if dtype == "tf32" and "tf32" not in self.device.peak_flops:
            return "fp32"
        return cast(Dtype, dtype)

    def _origin(self, kind: CurveKind, dtype: str) -> Origin:
        plain = self._native(dtype) == "fp32"
        by_kind: dict[CurveKind, Kind] = {
            "gemm": "fp32" if plain else "gemm",
            "conv": "fp32" if plain else "gemm",
            "attention": "fp32" if plain else "gemm" if dtype == "tf32" else "attention",
            "memory_bound": "memory",
            "collective": "collective",
        }
        return _cached_origin(by_kind[kind], self._key)

    def _is_converted(self, kind: CurveKind, dtype: str) -> bool:
        """Whether a measured curve of another dtype stands in for this one."""
        native = self._native(dtype)
        if native == "fp32":
            return kind == "attention"
        if native == "fp16":
            return False  # Same units and bytes as bf16 wherever both exist.
        grids = self._origin("gemm", native).curves.gemm_grids
        return native not in grids if kind == "gemm" else native == "tf32"

    def _interpolation_error(self, kind: CurveKind, dtype: str, origin: Origin) -> float:
        curves, native = origin.curves, self._native(dtype)
        if kind == "collective":
            return curves.collective_error or 0.0
        if kind == "memory_bound":
            return max(f.relative_error for f in curves.memory.values())
        if kind == "attention" and native not in ("fp32", "tf32"):
            return curves.attention_error or 0.0
        if native == "fp32":
            return self._tiles(origin, "conv" if kind == "conv" else "linear").relative_error
        return self._grid(origin, native)[0].relative_error

    def _grid(self, origin: Origin, dtype: Dtype) -> tuple[GemmGrid, Dtype]:
        grids = origin.curves.gemm_grids
        used: Dtype = "fp8" if dtype == "fp8" and "fp8" in grids else "bf16"
        return grids[used], used

    def _tile_models(self, origin: Origin) -> dict[str, TileModel]:
        return origin.curves.tile_models.get("fp32", {})

    def _tiles(self, origin: Origin, op: str) -> TileModel:
        models = self._tile_models(origin)
        if op in models:
            return models[op]
        # Convolutions were measured on few devices: take the form, at this device's own rate.
        pattern = origin_of(measured_device("A100-80GB-PCIe"), "fp32").curves.tile_models["fp32"]
        ratio = models["linear"].efficiency / pattern["linear"].efficiency
        return replace(pattern[op], efficiency=pattern[op].efficiency * ratio)

    def machine(self, dtype: str, level: float = 1.0) -> Machine:
        """Return the datasheet numbers that kernels in this dtype scale with."""
        device = self.device
        return Machine(
            peak_flops=device.peak_flops[cast(Dtype, dtype)],
            bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s,
            operand_bytes=_OPERAND_BYTES[dtype],
            output_bytes=_OUTPUT_BYTES[dtype],
            l2_bytes=device.l2_bytes or 0,
            compute_units=device.compute_units or _TYPICAL_UNITS,
            level=level,
        )

    def _link_ratio(self, origin: Origin, link_bytes_per_s: float | None) -> float:
        unknown = shared_table("_relations")["unknown_link"]["bytes_per_s"]
        here = link_bytes_per_s or self.device.link_bytes_per_s or unknown
        return here / (measured_device(origin.measured_on).link_bytes_per_s or unknown)

    @cached_property
    def _key(self) -> _Device:
        return _Device(self.device)

    @cached_property
    def _large_gemm_rates(self) -> dict[Dtype, float]:
        supported: list[Dtype] = [d for d in GEMM_DTYPES if d in self.device.peak_flops]
        return {
            dtype: 2 * _LARGE**3 / float(self.gemm_s(_LARGE, _LARGE, _LARGE, dtype=dtype))
            for dtype in supported
        }

    @cached_property
    def _floor_s(self) -> float:
        origin = self._origin("gemm", "bf16")
        own = origin.curves.kernel_floor_s if origin.basis == "measured" else None
        return own or _TYPICAL_FLOOR_S


def curves_for(accelerator: Accelerator) -> DeviceCurves:
    """Return the curves of an accelerator; one that was not measured is derived from a relative."""
    return _cached_curves(_Device(accelerator))


@lru_cache(maxsize=512)
def _cached_curves(device: _Device) -> DeviceCurves:
    return DeviceCurves(device.device)


class _Device:
    """An accelerator as a cache key that costs nothing to hash: its name decides."""

    def __init__(self, device: Accelerator) -> None:
        self.device = device

    def __hash__(self) -> int:
        return hash(self.device.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Device) and (
            self.device is other.device or self.device == other.device
        )


@lru_cache(maxsize=2048)
def _cached_origin(kind: Kind, device: _Device) -> Origin:
    return origin_of(device.device, kind)


def measured_device(name: str) -> Accelerator:
    """Return the catalogue's row of a measured accelerator."""
    from ..catalog.snapshot import load_catalogue

    return load_catalogue().accelerators[name]


def _misalignment(m: Array, n: Array, k: Array, batch: Array) -> Array:
    """Return the slowdown of operands whose rows do not start on tensor-core boundaries."""
    rule = shared_table("_relations")["misaligned"]
    odd = (n % rule["multiple_of"] != 0) | (k % rule["multiple_of"] != 0)
    return np.where(odd, np.where(batch > 1, rule["batched"], rule["linear"]), 1.0)


def _arrays(*values: ArrayLike) -> tuple[Array, ...]:
    return tuple(np.asarray(value, dtype=float) for value in values)
