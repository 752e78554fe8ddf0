"""Where one accelerator's curves come from, per kind and dtype, and how far to trust them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal, cast

import numpy as np

from ...catalog.embedded import embedded_catalogue
from ...catalog.errors import UsageError
from ...catalog.types import Accelerator, Dtype
from .files import (
    AttentionGrid,
    ConvolutionFacts,
    CurveFile,
    GemmGrid,
    TileModel,
    embedded_curve_file,
    shared_table,
)
from .gemm import Machine
from .relatives import TENSOR_DTYPES, Basis, Kind, Origin, origin_of

CurveKind = Literal["gemm", "conv", "attention", "memory_bound", "collective"]
GEMM_DTYPES: tuple[Dtype, ...] = ("fp32", "tf32", "fp16", "bf16", "fp8")
_OPERAND_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
_OUTPUT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2}
_TYPICAL_UNITS = 100
_CONVOLUTIONS_MEASURED_ON = "A100-80GB-PCIe"


@dataclass(frozen=True)
class CurveSource:
    """One accelerator's own measurements, or those of its nearest measured relatives."""

    device: Accelerator
    own: CurveFile | None = field(default=None, repr=False, compare=False)
    """What was measured on this very device."""
    left_out: bool = False
    """Whether everything that was measured on this device is left out."""

    @property
    def accelerator(self) -> str:
        """Name of the accelerator."""
        return self.device.name

    @property
    def basis(self) -> Basis:
        """Whether its matrix multiplications were measured on this device or derived."""
        return self.basis_of("gemm", "bf16")

    def basis_of(self, kind: CurveKind, dtype: str = "bf16") -> Basis:
        """Return "measured" or "derived" for a kind of kernel in a dtype."""
        origin = self._origin(kind, dtype)
        return "derived" if self._is_converted(kind, dtype) else origin.basis

    def relative_of(self, kind: CurveKind, dtype: str = "bf16") -> str:
        """Return the accelerator whose measurements are used (its own name if measured)."""
        return self._origin(kind, dtype).measured_on

    def relative_error(self, kind: CurveKind, dtype: str = "bf16") -> float:
        """Return one sigma of the relative error of a predicted kernel time."""
        origin = self._origin(kind, dtype)
        own = self._interpolation_error(kind, dtype, origin)
        native, extra = self._native(dtype), 0.0
        if kind == "attention" and native in ("fp32", "tf32"):
            if self._own_attention(native) is None:
                extra = shared_table("_relations")["fp32_attention"]["relative_error"]
        elif kind == "conv" and native != "fp32":
            extra = self._convolutions(origin, native).relative_error
        return float(np.sqrt(own**2 + origin.relative_error**2 + extra**2))

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

    def multiplies(self, dtype: str) -> bool:
        """Return whether the device multiplies matrices in a dtype at a rate that is known."""
        if dtype == "fp64":
            return self.device.fp64_flops_per_s is not None and self.multiplies("fp32")
        native = self._native(dtype)
        return native in GEMM_DTYPES and native in self.device.peak_flops

    def _checked(self, dtype: str) -> Dtype:
        if self.multiplies(dtype):
            return self._native(dtype)
        known = [d for d in GEMM_DTYPES if d in self.device.peak_flops]
        raise UsageError(
            f"{self.accelerator} does not multiply matrices in {dtype}.",
            fix=f"use one of {', '.join(known) or 'no dtype: its peak is not known'}",
        )

    def _native(self, dtype: str) -> Dtype:
        peaks = self.device.peak_flops
        plain = "fp32" if dtype == "tf32" and "tf32" not in peaks else cast(Dtype, dtype)
        # On a TPU, XLA multiplies fp32 as bf16 unless it is told otherwise:
        # https://github.com/google/jax/issues/1856
        if plain == "fp32" and "fp32" not in peaks and self.device.needs_xla:
            return "bf16"
        if plain == "fp16" and self.device.multiplies_fp16_in_fp32:
            return "fp32"
        return plain

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

    def _measured_device(self, origin: Origin) -> Accelerator:
        """Return the device that the curves were measured on, which may be the user's own."""
        own = origin.measured_on == self.device.name
        return self.device if own else measured_device(origin.measured_on)

    def _is_converted(self, kind: CurveKind, dtype: str) -> bool:
        """Whether a curve of another dtype or kind stands in for this one."""
        native = self._native(dtype)
        if kind in ("memory_bound", "collective"):
            return False
        origin = self._origin(kind, dtype)
        if kind == "conv":
            if native == "fp32":
                return "conv" not in self._tile_models(origin)
            return self._measured_convolutions(origin, native) is None
        if kind == "attention":
            return native in ("fp32", "tf32") and self._own_attention(native) is None
        # fp16 runs on the same units with the same bytes as bf16 wherever both exist.
        return native in ("tf32", "fp8") and native not in origin.curves.gemm_grids

    def _interpolation_error(self, kind: CurveKind, dtype: str, origin: Origin) -> float:
        curves, native = origin.curves, self._native(dtype)
        if kind == "collective":
            return curves.collective_error or 0.0
        if kind == "memory_bound":
            # A step mixes the kinds; their errors are of one sign per kind, so take the mean.
            return float(np.mean([f.relative_error for f in curves.memory.values()]))
        if kind == "attention" and native not in ("fp32", "tf32"):
            return curves.attention_error or 0.0
        if kind == "attention" and self._own_attention(native) is not None:
            return curves.attention_error or 0.0
        if native == "fp32" and kind != "conv" and "fp32" in curves.gemm_grids:
            return curves.gemm_grids["fp32"].relative_error
        if native == "fp32":
            return self._tiles(origin, "conv" if kind == "conv" else "linear").relative_error
        return self._grid(origin, native)[0].relative_error

    def _grid(self, origin: Origin, dtype: Dtype) -> tuple[GemmGrid, Dtype]:
        """Return the grid of this dtype, or the one that stands in for it, and its dtype."""
        grids = origin.curves.gemm_grids
        used = next(d for d in (dtype, *TENSOR_DTYPES) if d in grids)
        return grids[used], cast(Dtype, used)

    def _attention_grids(
        self, origin: Origin, dtype: Dtype
    ) -> tuple[tuple[AttentionGrid, ...], Dtype]:
        grids = origin.curves.attention_grids
        used = next(d for d in (dtype, *TENSOR_DTYPES) if d in grids)
        return grids[used], cast(Dtype, used)

    def _own_attention(self, dtype: Dtype) -> tuple[AttentionGrid, ...] | None:
        """Return attention of this very dtype measured on this very device, if it was."""
        return None if self.own is None else self.own.attention_grids.get(dtype)

    def _convolutions(self, origin: Origin, dtype: Dtype) -> ConvolutionFacts:
        measured = self._measured_convolutions(origin, dtype)
        if measured is not None:
            return measured
        shared = shared_table("_relations")["tensor_core_convolution"]
        return ConvolutionFacts(**{k: v for k, v in shared.items() if k != "source"})

    def _measured_convolutions(self, origin: Origin, dtype: Dtype) -> ConvolutionFacts | None:
        # The device's own, even where its products are a relative's.
        measured = (self.own.convolutions if self.own else {}) or origin.curves.convolutions
        same_units = ("bf16", "fp16") if dtype in ("bf16", "fp16") else ()
        return next((measured[d] for d in (dtype, *same_units) if d in measured), None)

    def _tile_models(self, origin: Origin) -> dict[str, TileModel]:
        return origin.curves.tile_models.get("fp32", {})

    def _tiles(self, origin: Origin, op: str) -> TileModel:
        models = self._tile_models(origin)
        if op in models:
            return models[op]
        # Convolutions were measured on few devices: take the form, at this device's own rate.
        pattern = embedded_curve_file(_CONVOLUTIONS_MEASURED_ON).tile_models["fp32"]
        ratio = models["linear"].efficiency / pattern["linear"].efficiency
        return replace(pattern[op], efficiency=pattern[op].efficiency * ratio)

    @cached_property
    def _key(self) -> DeviceKey:
        return DeviceKey(self.device, self.own, left_out=self.left_out)


class DeviceKey:
    """An accelerator and its own curves as a cache key that costs nothing to hash."""

    def __init__(
        self, device: Accelerator, own: CurveFile | None, *, left_out: bool = False
    ) -> None:
        self.device = device
        self.own = own
        self.left_out = left_out

    def __hash__(self) -> int:
        return hash(self.device.name)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DeviceKey)
            and self.own is other.own
            and self.left_out == other.left_out
            and (self.device is other.device or self.device == other.device)
        )


@lru_cache(maxsize=2048)
def _cached_origin(kind: Kind, key: DeviceKey) -> Origin:
    return origin_of(key.device, kind, key.own, left_out=key.left_out)


def measured_device(name: str) -> Accelerator:
    """Return the catalogue's row of a measured accelerator."""
    # The embedded one: fresh prices change no accelerator, and a search asks a thousand times.
    return embedded_catalogue().accelerators[name]
