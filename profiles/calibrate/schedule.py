"""What `gpuplan calibrate` measures, in order of value: a coarse grid of every kind comes first.

Every kind has levels of nodes, each level holding the nodes of the one before. So a measurement
that ends early has coarse grids of everything, one with time to spare has those of the embedded
files.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Literal

from ...catalog.types import Accelerator, Dtype
from ...catalog.vocabulary import COLLECTIVES

Part = Literal[
    "gemm",
    "batched",
    "attention",
    "attention_backward",
    "convolution",
    "convolution_backward",
    "stream",
    "collective",
]
Scale = Literal["gpu", "cpu"]
Axes = tuple[tuple[int, ...], ...]
MEASURED_DTYPES: tuple[Dtype, ...] = ("bf16", "fp16", "tf32", "fp32", "fp8")
STREAM_KINDS = ("pointwise", "norm", "softmax", "copy", "embedding", "optimizer")
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp8": 1}
BACKWARD_FLOPS_OVER_FORWARD = {"attention_backward": 2.5, "convolution_backward": 2.0}
STREAM_ELEMENT_BYTES = 4
_OPTIMIZER_TENSORS = 7
"""AdamW reads parameter, gradient and two moments, and writes all but the gradient."""
_SLOWEST_SHARE_OF_PEAK = 0.5
_LONGEST_S = 0.25
"""A kernel that would take longer is left out: larger ones cost as much per FLOP."""
_SHARE_OF_MEMORY = 0.5

GEMM_LEVELS: dict[Scale, tuple[Axes, ...]] = {
    "gpu": (
        ((512, 8192), (1024, 8192), (1024, 8192)),
        ((128, 512, 2048, 8192, 32768), *((256, 1024, 2048, 4096, 8192, 16384),) * 2),
        (
            (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
            *((128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 51200),) * 2,
        ),
    ),
    "cpu": (
        ((64, 512), (64, 512), (64, 512)),
        ((64, 128, 256, 512), (64, 128, 256, 512), (64, 128, 256, 512)),
        ((32, 64, 128, 256, 512, 1024, 2048), *((64, 128, 256, 512, 1024, 2048),) * 2),
    ),
}
ATTENTION_LEVELS: dict[Scale, tuple[Axes, ...]] = {
    # Head dimension, batch times heads, sequence, heads per kv head.
    "gpu": (
        ((64, 128), (16, 256), (1024, 4096), (1,)),
        ((64, 128), (8, 32, 128, 512), (512, 1024, 2048, 4096, 8192), (1, 8)),
        (
            (64, 128, 256),
            (4, 8, 16, 32, 64, 128, 256, 512, 1024),
            (512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384),
            (1, 2, 4, 8),
        ),
    ),
    "cpu": (
        ((64,), (2, 8), (64, 256), (1,)),
        ((32, 64), (2, 4, 8, 16), (64, 128, 256, 512), (1,)),
        ((32, 64, 128), (2, 4, 8, 16, 32), (64, 128, 256, 512, 1024), (1, 4)),
    ),
}
CONVOLUTION_LEVELS: dict[Scale, tuple[tuple[tuple[int, ...], ...], ...]] = {
    # Batch, channels in, channels out, kernel, image size, stride, groups.
    "gpu": (
        ((64, 256, 256, 3, 14, 1, 1), (64, 256, 64, 1, 56, 1, 1), (64, 128, 128, 3, 28, 1, 1)),
        (
            (64, 64, 64, 3, 56, 1, 1),
            (64, 512, 512, 3, 7, 1, 1),
            (64, 1024, 256, 1, 14, 1, 1),
            (64, 512, 1024, 1, 14, 2, 1),
            (16, 128, 128, 3, 112, 1, 1),
            (16, 320, 320, 3, 64, 1, 1),
            (16, 640, 640, 3, 32, 1, 1),
            (256, 128, 128, 3, 28, 1, 1),
        ),
        (
            (256, 256, 256, 3, 14, 1, 1),
            (256, 512, 2048, 1, 7, 1, 1),
            (64, 64, 128, 3, 56, 2, 1),
            (8, 1280, 1280, 3, 16, 1, 1),
            (16, 640, 320, 3, 64, 1, 1),
            (128, 64, 256, 1, 56, 1, 1),
        ),
    ),
    "cpu": (
        ((1, 32, 32, 3, 28, 1, 1), (1, 64, 32, 1, 28, 1, 1), (2, 16, 32, 3, 28, 1, 1)),
        ((2, 32, 64, 3, 14, 1, 1), (1, 64, 64, 3, 14, 1, 1), (4, 32, 64, 1, 28, 1, 1)),
        ((4, 64, 64, 3, 28, 1, 1), (4, 128, 128, 3, 14, 1, 1), (4, 256, 64, 1, 28, 1, 1)),
    ),
}
BATCHED_LEVELS: dict[Scale, tuple[tuple[tuple[int, ...], ...], ...]] = {
    # m, n, k, batch.
    "gpu": (
        ((512, 512, 64, 128), (1024, 1024, 128, 64)),
        ((512, 64, 512, 128), (1024, 128, 1024, 64), (256, 256, 64, 512), (2048, 2048, 64, 32)),
        ((128, 128, 64, 1024), (2048, 64, 2048, 32), (4096, 4096, 128, 8), (384, 384, 96, 192)),
    ),
    "cpu": (
        ((64, 64, 64, 8), (128, 128, 64, 4)),
        ((128, 64, 128, 8), (256, 256, 64, 2), (64, 64, 32, 16)),
        ((256, 64, 256, 8), (128, 128, 32, 16)),
    ),
}
STREAM_LEVELS: dict[Scale, tuple[tuple[int, ...], ...]] = {
    # Elements of one tensor.
    "gpu": ((2**28, 2**10), (2**20, 2**22, 2**24, 2**26, 2**27), (2**16, 2**18, 2**25)),
    "cpu": ((2**22, 2**10), (2**20, 2**21), (2**16, 2**18, 2**24)),
}
COLLECTIVE_LEVELS: dict[Scale, tuple[tuple[int, ...], ...]] = {
    # Bytes: gathered output of all_gather, input of the others.
    "gpu": (
        (2**12, 2**16, 2**20, 2**24, 2**28),
        tuple(2**power for power in range(10, 31, 2)),
        tuple(2**power for power in range(9, 31)),
    ),
    "cpu": ((2**12, 2**16, 2**20), (2**14, 2**18, 2**22), (2**10, 2**24)),
}


@dataclass(frozen=True)
class Point:
    """One kernel to be timed."""

    part: Part
    dtype: str
    """Dtype of the operands; for "stream" and "collective" the kind."""
    shape: tuple[int, ...]
    level: int

    def to_json(self) -> dict[str, Any]:
        """Return the point as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Point:
        """Return the point of that JSON."""
        return cls(raw["part"], raw["dtype"], tuple(raw["shape"]), raw["level"])

    @property
    def what(self) -> str:
        """The point in words: "gemm bf16 512x1024x1024"."""
        return f"{self.part} {self.dtype} {'x'.join(map(str, self.shape))}"

    @property
    def flops(self) -> float:
        """Floating-point operations; 0 for what only moves bytes."""
        if self.part in ("gemm", "batched"):
            m, n, k, *batch = self.shape
            return 2.0 * m * n * k * (batch[0] if batch else 1)
        more = BACKWARD_FLOPS_OVER_FORWARD.get(self.part, 1.0)
        if self.part.startswith("attention"):
            head_dim, batch_heads, seq, _ = self.shape
            return more * 2.0 * batch_heads * seq**2 * head_dim
        if self.part.startswith("convolution"):
            _, c_in, _, kernel, _, _, groups = self.shape
            return more * 2.0 * self._outputs * (c_in / groups) * kernel**2
        return 0.0

    @property
    def size_bytes(self) -> float:
        """Bytes of all operands and results, each once; of a collective its whole buffer."""
        if self.part == "collective":
            return float(self.shape[1])
        if self.part == "stream":
            tensors = _OPTIMIZER_TENSORS if self.dtype == "optimizer" else 2
            return float(tensors * STREAM_ELEMENT_BYTES * self.shape[0])
        size = ELEMENT_BYTES[self.dtype]
        if self.part in ("gemm", "batched"):
            m, n, k, *batch = self.shape
            out = m * n * max(size, 2)
            return float((batch[0] if batch else 1) * (size * (m * k + n * k) + out))
        if self.part.startswith("attention"):
            head_dim, batch_heads, seq, group = self.shape
            forward = size * batch_heads * seq * head_dim * (2 + 2 / group)
            return forward * (2 if self.part == "attention_backward" else 1)
        batch, c_in, c_out, kernel, image, _, groups = self.shape
        weight = c_out * c_in // groups * kernel**2
        moved = size * (batch * c_in * image**2 + weight + self._outputs)
        return float(moved * (2 if self.part == "convolution_backward" else 1))

    @property
    def _outputs(self) -> int:
        batch, _, c_out, _, image, stride, _ = self.shape
        return batch * c_out * (image // stride) ** 2


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What is asked for and what the machine allows."""

    accelerator: Accelerator
    scale: Scale
    dtypes: tuple[Dtype, ...]
    memory_bytes: float
    """Free on the device."""
    ranks: tuple[int, ...] = ()
    """Numbers of devices among which collectives are timed."""
    levels: int = 3
    """How many levels to measure at most."""


def default_dtypes(accelerator: Accelerator) -> tuple[Dtype, ...]:
    """Return the dtypes that are measured unless told otherwise: fp16 only stands in for bf16."""
    return tuple(
        dtype
        for dtype in MEASURED_DTYPES
        if dtype in accelerator.peak_flops
        and not (dtype == "fp16" and "bf16" in accelerator.peak_flops)
    )


def measuring_plan(scope: Scope) -> list[Point]:
    """Return the points in the order in which they are worth measuring, none of them twice."""
    points: dict[tuple[object, ...], Point] = {}
    for level in range(scope.levels):
        for point in _level(scope, level):
            points.setdefault((point.part, point.dtype, point.shape), point)
    return [point for point in points.values() if _is_small_enough(point, scope)]


def gemm_axes(scale: Scale, level: int) -> Axes:
    """Return the nodes (m, n, k) of one level."""
    return GEMM_LEVELS[scale][level]


def attention_axes(scale: Scale, level: int) -> Axes:
    """Return the nodes (head dimension, batch times heads, sequence, group) of one level."""
    return ATTENTION_LEVELS[scale][level]


def _level(scope: Scope, level: int) -> Iterator[Point]:
    scale = scope.scale
    for dtype in scope.dtypes[:1]:
        yield from _grid("gemm", dtype, gemm_axes(scale, level), level)
    for kind in STREAM_KINDS:
        for elements in STREAM_LEVELS[scale][level]:
            yield Point("stream", kind, (elements,), level)
    # fp8 recipes keep attention and convolutions in 16 bits; tf32 attention runs as fp32.
    attention: list[Dtype] = [d for d in scope.dtypes if d not in ("fp8", "tf32")]
    for part, dtype in product(("attention", "attention_backward"), attention[:1]):
        yield from _attention(part, dtype, scale, level)
    yield from _collectives(scope, level)
    for dtype in scope.dtypes:
        if dtype != "fp8":
            yield from _convolutions(dtype, CONVOLUTION_LEVELS[scale][level], level)
    for dtype in scope.dtypes[1:]:
        yield from _grid("gemm", dtype, gemm_axes(scale, level), level)
    if "fp32" in scope.dtypes:
        for shape in BATCHED_LEVELS[scale][level]:
            yield Point("batched", "fp32", shape, level)
    for dtype, part in product(attention[1:], ("attention", "attention_backward")):
        yield from _attention(part, dtype, scale, level)


def _grid(part: Part, dtype: str, axes: Axes, level: int) -> Iterable[Point]:
    shapes = list(product(*axes))
    # Spread over the grid, so that what is left out when time ends is not all of one kind.
    random.Random(level).shuffle(shapes)
    return (Point(part, dtype, shape, level) for shape in shapes)


def _attention(part: str, dtype: str, scale: Scale, level: int) -> Iterable[Point]:
    name: Part = "attention_backward" if part == "attention_backward" else "attention"
    points = _grid(name, dtype, attention_axes(scale, level), level)
    return (point for point in points if point.shape[1] % point.shape[3] == 0)


def _convolutions(dtype: str, shapes: Sequence[tuple[int, ...]], level: int) -> Iterator[Point]:
    for shape in shapes:
        forward = Point("convolution", dtype, shape, level)
        yield forward
        yield replace(forward, part="convolution_backward")


def _collectives(scope: Scope, level: int) -> Iterator[Point]:
    for ranks, kind in product(scope.ranks, COLLECTIVES):
        for size_bytes in COLLECTIVE_LEVELS[scope.scale][level]:
            yield Point("collective", kind, (ranks, size_bytes), level)


def _is_small_enough(point: Point, scope: Scope) -> bool:
    # A backward pass holds its forward's tensors too.
    if 2 * point.size_bytes > _SHARE_OF_MEMORY * scope.memory_bytes:
        return False
    peaks = {str(dtype): peak for dtype, peak in scope.accelerator.peak_flops.items()}
    peak = peaks.get(point.dtype) if point.flops else None
    return peak is None or point.flops / (_SLOWEST_SHARE_OF_PEAK * peak) < _LONGEST_S
