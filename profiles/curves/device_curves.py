"""Kernel times on one accelerator: measured curves, or those of its nearest measured relative.

    curves = curves_for(load_catalogue().accelerators["H100-80GB-SXM"])
    curves.gemm_s(8192, 4096, 4096, dtype="bf16")

All times are in seconds, without the host's launch cost; arguments are numbers or arrays that
broadcast. What is measured, what is derived and how well both do is in docs/curves.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...catalog.types import Accelerator, Dtype
from ...catalog.vocabulary import Collective
from .attention import (
    BACKWARD_FLOPS_OVER_FORWARD,
    BACKWARD_OVER_FORWARD,
    AttentionShape,
    forward_attention_s,
)
from .choice import USUAL_CURVES, CurveChoice
from .collectives import collective_table_s
from .convolution import Convolution, depthwise_conv_s, tensor_core_conv_s, tiled_conv_s
from .files import Array, AttentionGrid, shared_table
from .gemm import GemmShapes, grid_gemm_s, tile_gemm_s
from .odd_widths import OddWidths, odd_product_s
from .relatives import Origin
from .source import GEMM_DTYPES, CurveSource, DeviceKey
from .user_curves import own_curves

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

StreamKind = Literal["pointwise", "norm", "softmax", "copy", "embedding", "optimizer"]
_TYPICAL_FLOOR_S = 2.5e-6
"""Shortest kernel where it is not measured: the middle of the measured 1.6 to 3.2 µs."""
_LARGE = 8192.0
FEW_CHANNELS = 4
"""Images have three: 4-byte kernels for them use no tensor cores (traced stems of two CNNs)."""
_VECTOR_SHARE = 16
"""Matrix units over vector units, where no fp32 peak is known."""
_TYPICAL_UNITS, _TYPICAL_HZ = 108, 1.8e9
"""Multiprocessors and clock where they are not known: those of an A100, and between its 1.4 and
Ada's 2.5 GHz."""
_OF_THREADS = ("NVIDIA", "AMD")
"""Makers of devices of many multiprocessors that each run threads."""


@dataclass(frozen=True)
class DeviceCurves(CurveSource):
    """Kernel times of one accelerator; make it with `curves_for`."""

    def gemm_s(
        self, m: ArrayLike, n: ArrayLike, k: ArrayLike, *, batch: ArrayLike = 1, dtype: str
    ) -> Array:
        """Return the seconds of `batch` multiplications (m×k)·(k×n).

        Raises:
            UsageError: The device does not multiply in this dtype.
        """
        return self.products_s(GemmShapes(*_arrays(m, n, k, batch)), dtype=dtype)

    def products_s(self, shapes: GemmShapes, *, dtype: str) -> Array:
        """Return the seconds of matrix multiplications, as `gemm_s`.

        Rates of fp32 that are a relative's are bounded by those of TF32: GeForce cards and the A10G
        state one peak for both, and half of their fp32 units also do the integer arithmetic
        (GA102 white paper, NVIDIA 2021), so that vector units do not outrun tensor cores.
        """
        native = self._checked(dtype)
        time = self._aligned_products_s(shapes, native)
        if native != "fp32":
            return time * _misalignment(shapes)
        if "tf32" in self.device.peak_flops and self.basis_of("gemm", native) == "derived":
            return np.maximum(time, self._aligned_products_s(shapes, "tf32"))
        return time

    def _aligned_products_s(self, shapes: GemmShapes, native: Dtype) -> Array:
        origin = self._origin("gemm", native)
        if native == "fp32" and "fp32" not in origin.curves.gemm_grids:
            machine = self.machine(native, origin.level)
            linear, batched = (
                tile_gemm_s(self._tiles(origin, op), machine, shapes)
                for op in ("linear", "batched")
            )
            return np.where(shapes.batch > 1, batched, linear)
        grid, grid_dtype = self._grid(origin, native)
        reference = CurveSource(self._measured_device(origin)).machine(grid_dtype)
        level = origin.level
        if native == "fp8" and grid_dtype != "fp8":
            level *= shared_table("_relations")["fp8_from_16_bits"]["level"]
        target = self.machine(native, level)
        return grid_gemm_s(grid, reference, target, shapes)

    def odd_products_s(
        self, time_s: Array, flops: Array, *, dtype: str, widths: OddWidths
    ) -> Array:
        """Return the seconds of products with an odd width (`odd_product_s`)."""
        return odd_product_s(time_s, flops, self.device, self._checked(dtype), widths)

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
        filter_side: ArrayLike | None = None,
    ) -> Array:
        """Return the seconds of a convolution.

        `flops` and `bytes` are those of the whole call: for `phase` "backward" both gradients.
        torch runs fp32 convolutions in tf32 unless told otherwise: ask for that dtype then.
        `filter_side` is the longest; None: that of a square filter, where there is one.
        """
        native = self._checked(dtype)
        side = np.floor(np.sqrt(kernel_elements)) if filter_side is None else filter_side
        conv = Convolution(
            *_arrays(batch, in_channels, out_channels, kernel_elements, out_pixels, groups),
            *_arrays(flops, bytes, side),
        )
        dense = self._dense_conv_s(conv, native, backward=phase == "backward")
        if not np.any(conv.is_depthwise):
            return dense
        machine = self.machine(native, self._origin("conv", native).level)
        of_threads = self.device.vendor in _OF_THREADS
        depthwise = depthwise_conv_s(
            conv,
            machine,
            vector_flops_per_s=self.device.peak_flops.get(
                "fp32", machine.peak_flops / _VECTOR_SHARE
            ),
            clocks_per_s=self.clocks_per_s if of_threads else None,
            element_bytes=4 if native in ("fp32", "tf32") else 2,
            backward=phase == "backward",
        )
        if phase == "backward":
            # The rate of filters of one side is the gradients' own.
            slowdown = self._conv_backward_slowdown(native)
            depthwise = depthwise * np.where(of_threads & conv.has_one_side, 1.0, slowdown)
        return np.where(conv.is_depthwise, depthwise, dense)

    def _dense_conv_s(self, conv: Convolution, native: Dtype, *, backward: bool) -> Array:
        """Return the seconds of convolutions of several channels each."""
        slowdown = self._conv_backward_slowdown(native) if backward else 1.0
        origin = self._origin("conv", native)
        machine = self.machine(native, origin.level)
        if native == "fp32":
            return tiled_conv_s(conv, self._tiles(origin, "conv"), machine) * slowdown
        share = self._convolutions(origin, native).share_of_gemm
        rate = share * self._large_gemm_rates[native]
        time = tensor_core_conv_s(conv, machine, gemm_flops_per_s=rate) * slowdown
        few = (conv.groups == 1) & (conv.in_channels < FEW_CHANNELS)
        if native != "tf32" or not np.any(few):
            return time
        return np.where(few, self._dense_conv_s(conv, "fp32", backward=backward), time)

    def _conv_backward_slowdown(self, native: Dtype) -> float:
        """Return the time of a convolution's gradients, per FLOP, over that of its forward."""
        if native != "fp32":
            return self._convolutions(self._origin("conv", native), native).backward_slowdown
        if self.device.vendor != "NVIDIA":
            return 1.0
        facts = shared_table("_relations")["fp32_convolution"]
        return facts["backward_slowdown"].get(self.device.arch, facts["elsewhere"])

    @property
    def clocks_per_s(self) -> float:
        """Return the clocks of all multiprocessors in a second."""
        device = self.device
        return (device.compute_units or _TYPICAL_UNITS) * (device.boost_hz or _TYPICAL_HZ)

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
        shape = AttentionShape(
            *_arrays(batch, heads, kv_heads, seq_q, seq_kv, head_dim), causal=causal
        )
        return self.fused_attention_s(shape, dtype=dtype, backward=backward, flops=flops)

    def fused_attention_s(
        self,
        shape: AttentionShape,
        *,
        dtype: str,
        backward: bool = False,
        flops: ArrayLike | None = None,
    ) -> Array:
        """Return the seconds of fused attention, as `attention_s`."""
        native = self._checked(dtype)
        if native == "fp8":  # fp8 recipes keep attention in 16 bits.
            native = "bf16"
        nominal = shape.forward_flops
        found = self._attention_curves(native, backward=backward)
        if found is None:
            share = shared_table("_relations")["fp32_attention"]["share_of_gemm"]
            time = nominal / (share * self._large_gemm_rates[native])
            is_measured = False
        else:
            grids, ratio, is_measured = found
            time = forward_attention_s(grids, shape) * ratio
        if backward:
            time = time if is_measured else time * BACKWARD_OVER_FORWARD
            nominal = nominal * BACKWARD_FLOPS_OVER_FORWARD
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
        origin = self._origin("memory_bound", "fp32")
        measured = origin.curves.memory
        alias = shared_table("_relations")["stream_kinds"].get(kind)
        if alias and kind not in measured:
            return self.memory_fraction(alias["as"]) * alias["factor"]
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

    def _attention_curves(
        self, dtype: Dtype, *, backward: bool
    ) -> tuple[tuple[AttentionGrid, ...], float, bool] | None:
        """Return the grids, this device's time over theirs, and whether they are the backward's.

        None: nobody measured attention in this dtype, nor in one that could stand in for it.
        """
        if dtype in ("fp32", "tf32"):
            forward = self._own_attention(dtype)
            if self.own is None or forward is None:
                return None
            direct = self.own.attention_backward_grids.get(dtype) if backward else None
            return direct or forward, 1.0, direct is not None
        origin = self._origin("attention", dtype)
        grids, used = self._attention_grids(origin, dtype)
        direct = origin.curves.attention_backward_grids.get(used) if backward else None
        return direct or grids, self._attention_ratio(origin, dtype, used), direct is not None

    def _attention_ratio(self, origin: Origin, dtype: Dtype, measured_in: Dtype) -> float:
        """Return this device's time over that of the measured one, by the peak that binds."""
        measured = self._measured_device(origin).peak_flops
        here, there = self.device.peak_flops[dtype], measured[measured_in]
        if origin.scale == "fp32":
            here, there = self.device.peak_flops["fp32"], measured["fp32"]
        return there / (here * origin.level)

    def _link_ratio(self, origin: Origin, link_bytes_per_s: float | None) -> float:
        unknown = shared_table("_relations")["unknown_link"]["bytes_per_s"]
        here = link_bytes_per_s or self.device.link_bytes_per_s or unknown
        return here / (self._measured_device(origin).link_bytes_per_s or unknown)

    @cached_property
    def _large_gemm_rates(self) -> dict[Dtype, float]:
        supported: list[Dtype] = [d for d in GEMM_DTYPES if d in self.device.peak_flops]
        return {
            dtype: 2 * _LARGE**3 / float(self.gemm_s(_LARGE, _LARGE, _LARGE, dtype=dtype))
            for dtype in supported
        }

    @cached_property
    def _floor_s(self) -> float:
        return (self.own.kernel_floor_s if self.own else None) or _TYPICAL_FLOOR_S


def curves_for(
    accelerator: Accelerator, choice: CurveChoice = USUAL_CURVES, *, without_own: bool = False
) -> DeviceCurves:
    """Return the curves of an accelerator; one that was not measured is derived from a relative.

    Args:
        accelerator: The device.
        choice: The user's own files, and accelerators that are left out.
        without_own: Leave out everything measured on this device, as if it were new: the way to
            measure how well a device without measurements is predicted.
    """
    left_out = without_own or accelerator.name in choice.left_out
    own = None if left_out else own_curves(accelerator.name, choice)
    return _cached_curves(DeviceKey(accelerator, own, left_out=left_out))


@lru_cache(maxsize=512)
def _cached_curves(key: DeviceKey) -> DeviceCurves:
    return DeviceCurves(key.device, key.own, key.left_out)


@lru_cache(maxsize=256)
def _misalignment(shapes: GemmShapes) -> Array:
    """Return the slowdown of batched operands whose rows do not start on tensor-core boundaries."""
    rule = shared_table("_relations")["misaligned"]
    uneven = ((shapes.n % rule["multiple_of"]) + (shapes.k % rule["multiple_of"])) > 0
    return np.where((shapes.batch > 1) & uneven, rule["batched"], 1.0)


def _arrays(*values: ArrayLike) -> tuple[Array, ...]:
    return tuple(np.asarray(value, dtype=float) for value in values)
