"""Device seconds of many kernels at many micro-batch sizes, read from efficiency curves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ....catalog.vocabulary import Precision
from ....profiles.curves.attention import AttentionShape
from ....profiles.curves.device_curves import FEW_CHANNELS, DeviceCurves, StreamKind
from ....profiles.curves.gemm import GemmShapes
from ....profiles.curves.odd_widths import OddWidths
from ....profiles.profile import Affine, Kernel, KernelKind
from ...constants import Constants
from ...growth import grown
from ...parallelism.column_row_parallel import GATHERED_RANKS
from .fourier import slowdowns
from .odd_widths import odd_widths_of

Array = np.ndarray

MATMUL_KINDS: frozenset[KernelKind] = frozenset({"gemm", "attention", "convolution", "rnn"})
STREAM_KIND: dict[KernelKind, StreamKind] = {
    "norm": "norm",
    "softmax": "softmax",
    "pointwise": "pointwise",
    "reduction": "norm",
    "embedding": "embedding",
    "copy": "copy",
    "optimizer": "optimizer",
    "other": "pointwise",
    "fft": "pointwise",
}
"""The curve that each memory-bound kind is read from."""

_GATE_TENSORS = 11
"""Of batch x hidden, which the gates of an LSTM's step read and write: four sums of products, which
are read and kept, the cell's state before and after, and the output."""
_RESNEXT_GROUPS, _RESNEXT_WIDTH = 32, 32
_LARGEST_DEPTHWISE = 7 * 7
"""Elements of the largest filter that cuDNN 8 has depthwise kernels for in channels-last order."""


def kernel_dtype(kernel: Kernel, precision: Precision) -> str:
    """Return the dtype that a kernel computes in under a precision.

    16-bit kernels follow the precision's own format; under fp8 only linear layers run in 8 bits;
    under tf32 matmul-like fp32 kernels run on the tensor cores. Convolutions do so under fp32 as
    well: torch allows TF32 there by default (torch.backends.cudnn.allow_tf32). Fused attention of
    fp32 tensors follows neither switch. fp64 stays what it is under every precision.
    """
    if kernel.dtype == "fp64":
        return "fp64"
    if kernel.dtype == "16bit":
        if precision == "fp8" and kernel.linear:
            return "fp8"
        return "fp16" if precision == "fp16-amp" else "bf16"
    by_default = kernel.kind in ("convolution", "rnn")
    if by_default or (kernel.kind == "gemm" and precision == "tf32"):
        return "tf32"
    return "fp32"


class KernelTable:
    """Kernels with their sizes at every micro-batch [K, B], made once for all devices."""

    def __init__(self, kernels: Sequence[Kernel], micro_batches: Array) -> None:
        self.kernels = tuple(kernels)
        self._micro_batches = np.asarray(micro_batches, dtype=float)
        self._groups: dict[Precision, dict[tuple[KernelKind, str], list[int]]] = {}
        self._dims: dict[tuple[int, ...], dict[str, Array]] = {}
        self._products: dict[tuple[int, ...], list[tuple[Array, GemmShapes]]] = {}
        self._attention: dict[int, AttentionShape] = {}
        self._groups_alike: dict[tuple[int, ...], list[list[int]]] = {}

    def device_s(
        self,
        curves: DeviceCurves,
        precision: Precision,
        *,
        cast_bytes: float = 0.0,
        odd_widths: OddWidths = "kept",
    ) -> Array:
        """Return [K, B] seconds on the device, without the host.

        Args:
            curves: achieved rates of the device.
            precision: decides the dtype of each kernel.
            cast_bytes: bytes moved to make an 8-bit operand, per element.
            odd_widths: what the software does with products of an odd width.
        """
        seconds = np.zeros((len(self.kernels), len(self._micro_batches)))
        for (kind, dtype), rows in self._by_kind(precision).items():
            if kind in MATMUL_KINDS:
                seconds[rows] = self._matmul_s(kind, rows, curves, dtype, odd_widths)
                if dtype == "fp8" and cast_bytes:
                    moved = self._cast_bytes(rows, cast_bytes)
                    seconds[rows] += np.where(moved, curves.memory_bound_s(moved, kind="copy"), 0)
            else:
                moved = self.moved_bytes[rows]
                seconds[rows] = curves.memory_bound_s(moved, kind=STREAM_KIND[kind], dtype=dtype)
                if kind == "fft":
                    seconds[rows] *= slowdowns([self.kernels[row] for row in rows])
        return seconds

    def _matmul_s(
        self, kind: KernelKind, rows: list[int], curves: DeviceCurves, dtype: str, odd: OddWidths
    ) -> Array:
        """Return [K, B] seconds of products, attention, convolutions or recurrent layers.

        Nobody published a curve of fp64: as long as in fp32, and no shorter than the FLOPs at the
        peak in fp64, and the bytes, take.
        """
        if dtype == "fp64":
            rate = curves.device.fp64_flops_per_s or np.nan  # `multiplies` asks first.
            streamed_s = curves.memory_bound_s(self.moved_bytes[rows])
            least_s = np.maximum(streamed_s, self._flops[rows] / rate)
            return np.maximum(self._matmul_s(kind, rows, curves, "fp32", "kept"), least_s)
        if kind == "gemm":
            return self._gemm_s(rows, curves, dtype, odd)
        by_kind = {"attention": self._attention_s, "convolution": self._convolution_s}
        one = by_kind.get(kind, self._rnn_s)
        seconds = np.empty((len(self.kernels), len(self._micro_batches)))
        for alike in self._alike(rows):
            seconds[alike] = one(alike[0], curves, dtype)
        return seconds[rows]

    def transposing_s(
        self, curves: DeviceCurves, precision: Precision, constants: Constants, *, copy_step: float
    ) -> Array:
        """Return [K, B] seconds that convolutions are transposed to channels-last and back.

        Args:
            curves: achieved rates of the device.
            precision: decides the dtype of each kernel.
            constants: how many elements a multiprocessor turns in a clock, among others.
            copy_step: time of a copy in a step relative to one alone.
        """
        seconds = np.zeros((len(self.kernels), len(self._micro_batches)))
        per_s = constants["transposed_per_clock"] * curves.clocks_per_s
        for (kind, dtype), rows in self._by_kind(precision).items():
            if kind != "convolution":
                continue
            turned = [row for row in rows if _is_transposed(self.kernels[row], curves, dtype)]
            # In TF32 what is written is in NCHW order already ("nhwckrsc_nchw" kernels).
            moved = self.read_bytes[turned] if dtype == "tf32" else self.moved_bytes[turned]
            streamed_s = copy_step * curves.memory_bound_s(2 * moved, kind="copy")
            elements = moved / (4 if dtype == "tf32" else 2)
            seconds[turned] = np.maximum(streamed_s, 2 * elements / per_s)
        return constants["transposition"] * seconds

    def general_transposing_s(
        self, curves: DeviceCurves, precision: Precision, constants: Constants
    ) -> Array:
        """Return [K, B] seconds that grouped channels-last convolutions are transposed, and back.

        Where cuDNN has no kernel for their memory order its general one turns every operand and
        result of a call, element by element.

        Args:
            curves: achieved rates of the device.
            precision: decides the dtype of each kernel.
            constants: how many elements a multiprocessor turns in a clock, and of how many narrow
                groups.
        """
        seconds = np.zeros((len(self.kernels), len(self._micro_batches)))
        per_s = constants["transposed_per_clock.general"] * curves.clocks_per_s
        for (kind, dtype), rows in self._by_kind(precision).items():
            if kind != "convolution":
                continue
            shares = [_turned_share(self.kernels[row], curves, dtype, constants) for row in rows]
            turned = [row for row, share in zip(rows, shares, strict=True) if share]
            if turned:
                part = np.array([[share] for share in shares if share])
                seconds[turned] = part * self._turned_elements(turned) / per_s
        return seconds

    def _turned_elements(self, rows: list[int]) -> Array:
        """Return [K, B] elements of 16-bit operands and results; both gradients read the output's.

        Weights, which are few, are counted with them.
        """
        dims = self.dims_of(rows)
        outputs = dims["batch"] * dims["out_channels"] * dims["out_pixels"]
        backward = np.array([[self.kernels[row].backward] for row in rows])
        return self.moved_bytes[rows] / 2 + backward * outputs

    def _by_kind(self, precision: Precision) -> dict[tuple[KernelKind, str], list[int]]:
        if precision not in self._groups:
            groups: dict[tuple[KernelKind, str], list[int]] = {}
            for row, kernel in enumerate(self.kernels):
                key = (kernel.kind, kernel_dtype(kernel, precision))
                groups.setdefault(key, []).append(row)
            self._groups[precision] = groups
        return self._groups[precision]

    @cached_property
    def read_bytes(self) -> Array:
        """[K, B] bytes that each kernel reads."""
        return self._at([k.bytes_read for k in self.kernels])

    @cached_property
    def moved_bytes(self) -> Array:
        """[K, B] bytes that each kernel reads and writes."""
        return self.read_bytes + self._at([k.bytes_written for k in self.kernels])

    @cached_property
    def _flops(self) -> Array:
        return self._at([k.flops for k in self.kernels])

    @cached_property
    def _odd(self) -> frozenset[int]:
        """Plain products with an odd width; how many tokens there are does not matter."""
        return frozenset(row for row, kernel in enumerate(self.kernels) if odd_widths_of([kernel]))

    def _at(self, values: Sequence[Affine]) -> Array:
        table = np.array(values, dtype=np.float64).reshape(-1, len(Affine._fields))
        return grown(table.T, self._micro_batches)

    def dims_of(self, rows: Sequence[int]) -> dict[str, Array]:
        """Return [K, B] sizes of these kernels by each dimension that all of them have."""
        key = tuple(rows)
        if key not in self._dims:
            first, *others = ({*self.kernels[row].dims} for row in rows)
            names = first.intersection(*others)
            self._dims[key] = {
                name: self._at([self.kernels[row].dims[name] for row in rows]) for name in names
            }
        return self._dims[key]

    def _gemm_s(
        self, rows: list[int], curves: DeviceCurves, dtype: str, odd_widths: OddWidths
    ) -> Array:
        seconds = np.empty((len(rows), len(self._micro_batches)))
        for part, shapes in self._products_of(rows):
            seconds[part] = curves.products_s(shapes, dtype=dtype)
        odd = [place for place, row in enumerate(rows) if row in self._odd]
        if odd:
            flops = self._flops[[rows[place] for place in odd]]
            seconds[odd] = curves.odd_products_s(
                seconds[odd], flops, dtype=dtype, widths=odd_widths
            )
        return seconds

    def _cast_elements(self, rows: list[int]) -> Array:
        """Return [K, B] elements that are cast to 8 bits for products: each operand once.

        The product forward casts its input and its weight, the one for the input's gradient casts
        that of the output and finds the weight (half of it is counted with each); the one for the
        weight's gradient, whose rows do not grow with the micro-batch, finds both.
        """
        dims = self.dims_of(rows)
        makes = np.array([[self.kernels[row].dims["m"].grows] for row in rows])
        elements = dims["batch"] * dims["k"] * (dims["m"] + dims["n"] / 2)
        return makes * elements

    def _cast_bytes(self, rows: list[int], cast_bytes: float) -> Array:
        """Return [K, B] bytes that casting moves.

        Ranks that cast before they gather do so with their own part of the rows; the copy in the
        other order, a byte an element, is made of what was gathered.
        """
        one = Affine(1)
        ranks = np.array([[self.kernels[row].dims.get(GATHERED_RANKS, one).base] for row in rows])
        dims = self.dims_of(rows)
        makes = np.array([[self.kernels[row].dims["m"].grows] for row in rows])
        elsewhere = (1 - 1 / ranks) * makes * dims["batch"] * dims["k"] * dims["m"]
        return cast_bytes * self._cast_elements(rows) - max(cast_bytes - 1, 0.0) * elsewhere

    def row_bytes(self, rows: list[int]) -> Array:
        """Return [K, B] bytes of the 16-bit rows that go in and out of products, weights apart."""
        dims = self.dims_of(rows)
        sizes = {name: dims[name] for name in ("m", "n", "k")}
        grows = {
            name: np.array([[self.kernels[row].dims[name].grows] for row in rows]) for name in sizes
        }
        tokens = sum(np.where(grows[name], size, 0) for name, size in sizes.items())
        widths = sum(np.where(grows[name], 0, size) for name, size in sizes.items())
        return 2 * dims["batch"] * tokens * widths

    def mask_bytes(self, rows: list[int]) -> Array:
        """Return [K, B] bytes of the 16-bit masks that attention reads: each head reads its own."""
        dims = self.dims_of(rows)
        return 2 * dims["batch"] * dims["heads"] * dims["seq_q"] * dims["seq_kv"]

    def _products_of(self, rows: list[int]) -> list[tuple[Array, GemmShapes]]:
        """Return (which rows, their shapes) of plain and of batched products.

        A batched product has curves of its own; the two kinds are never looked up together.
        """
        key = tuple(rows)
        if key not in self._products:
            dims = self.dims_of(rows)
            batched = dims["batch"].max(axis=1) > 1
            self._products[key] = [
                (part, GemmShapes(*(dims[name][part] for name in ("m", "n", "k", "batch"))))
                for part in (batched, ~batched)
                if part.any()
            ]
        return self._products[key]

    def _alike(self, rows: list[int]) -> list[list[int]]:
        """Return rows of one kind in groups that take equally long: the layers of most models."""
        key = tuple(rows)
        if key not in self._groups_alike:
            groups: dict[tuple[object, ...], list[int]] = {}
            for row in rows:
                kernel = self.kernels[row]
                sizes = (*kernel.dims.items(), kernel.flops)
                if kernel.kind != "attention":
                    sizes = (*sizes, kernel.op, kernel.bytes_read, kernel.bytes_written)
                groups.setdefault((kernel.backward, kernel.causal, *sizes), []).append(row)
            self._groups_alike[key] = list(groups.values())
        return self._groups_alike[key]

    def _attention_s(self, row: int, curves: DeviceCurves, dtype: str) -> Array:
        kernel = self.kernels[row]
        if row not in self._attention:
            dims = self.dims_of([row])
            names = ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim")
            sizes = (dims[name][0] for name in names)
            self._attention[row] = AttentionShape(*sizes, causal=kernel.causal)
        return curves.fused_attention_s(
            self._attention[row], dtype=dtype, backward=kernel.backward, flops=self._flops[row]
        )

    def _convolution_s(self, row: int, curves: DeviceCurves, dtype: str) -> Array:
        kernel, dims = self.kernels[row], self.dims_of([row])
        return curves.conv_s(
            dims["batch"][0],
            dims["in_channels"][0],
            dims["out_channels"][0],
            dims["kernel_elements"][0],
            dims["out_pixels"][0],
            dims["groups"][0],
            flops=self._flops[row],
            bytes=self.moved_bytes[row],
            dtype=dtype,
            phase="backward" if kernel.backward else "forward",
            filter_side=dims["filter_side"][0] if "filter_side" in dims else None,
        )

    def _rnn_s(self, row: int, curves: DeviceCurves, dtype: str) -> Array:
        """Return [B] seconds of a recurrent layer: its steps run one after another.

        A step multiplies (batch, hidden) by (hidden, 4·hidden), and its gates are a kernel of their
        own, which waits for that (Appleyard et al. 2016, arXiv:1604.01946, section 3); the rest of
        the FLOPs, the input projections of all steps, run as one product.
        """
        kernel, dims = self.kernels[row], self.dims_of([row])
        batch, hidden, width = dims["batch"][0], dims["hidden"][0], dims["input"][0]
        one_step_s = curves.gemm_s(batch, 4 * hidden, hidden, dtype=dtype)
        cells = dims["steps"][0] * dims["layers"][0]
        steps = cells * (2 if kernel.backward else 1)
        element_bytes = 4 if dtype in ("fp32", "tf32") else 2
        gates_s = curves.memory_bound_s(_GATE_TENSORS * batch * hidden * element_bytes)
        rest_flops = np.maximum(self._flops[row] - 8 * batch * hidden**2 * steps, 0)
        rows = batch * dims["steps"][0]
        projection_s = curves.gemm_s(rows, 4 * hidden, width, dtype=dtype)
        projections = rest_flops / (8 * rows * hidden * width)
        return one_step_s * steps + gates_s * cells + projection_s * projections


def _is_transposed(kernel: Kernel, curves: DeviceCurves, dtype: str) -> bool:
    """Return whether cuDNN turns a convolution's tensors to channels-last and back around it.

    Its tensor-core kernels take no other order (cuDNN developer guide, "Tensor Core Operations":
    NCHW data is padded and transposed). TF32 is no exception: on an A100 a third of a convolution
    in NCHW order is nchwToNhwcKernel and nhwcToNchwKernel (pytorch/pytorch#81940, cuDNN 8.3).
    """
    device = curves.device
    if device.vendor != "NVIDIA" or kernel.op.endswith(".channels_last"):
        return False
    if dtype != "tf32":
        return dtype in ("fp16", "bf16")
    channels = max(kernel.dims["in_channels"]) / max(kernel.dims["groups"])
    return "tf32" in device.peak_flops and channels >= FEW_CHANNELS


def _turned_share(kernel: Kernel, curves: DeviceCurves, dtype: str, constants: Constants) -> float:
    """Return of how much of a grouped channels-last convolution cuDNN 8 has no kernel for.

    Those of ResNeXt, 32 groups of up to 32 channels, have one, and so have depthwise ones up to 7 x
    7 (its release notes 8.0.0: "5x5/1x1, 5x5/2x2, 7x7/1x1, 7x7/2x2", tensorflow/tensorflow#40303);
    the first shapes beyond are slow: of ResNeXt-101 32x8d only those of 64 channels a group
    (pytorch/pytorch#34977), 2 groups of 112 by 31 times (torch/_inductor/graph.py,
    `decide_layout_opt`), groups of a fixed width in RegNet and NFNet (pytorch/pytorch#70954). Other
    numbers of groups as narrow as ResNeXt's are between (`transposed_share.narrow_groups`).
    """
    if curves.device.vendor != "NVIDIA" or dtype not in ("fp16", "bf16"):
        return 0.0
    groups, channels = max(kernel.dims["groups"]), max(kernel.dims["in_channels"])
    if groups == 1 or not kernel.op.endswith(".channels_last"):
        return 0.0
    if groups == channels:
        return float(max(kernel.dims["kernel_elements"]) > _LARGEST_DEPTHWISE)
    if channels / groups > _RESNEXT_WIDTH:
        return 1.0
    return 0.0 if groups == _RESNEXT_GROUPS else constants["transposed_share.narrow_groups"]
