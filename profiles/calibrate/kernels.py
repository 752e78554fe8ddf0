"""Real kernels on a real device, one at a time: what `gpuplan calibrate` runs in its child process.

A time is the median of repeats on the device's own clock. Before every repeat the L2 cache is
flushed, and the device is kept busy while the host enqueues, so that no time holds the host's
launch; short kernels run several times in a row on operands of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as functional

from .schedule import Point

Call = Callable[[], object]
_TORCH_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "fp32": torch.float32,
}
_ROW = 1024
"""Elements that a norm or a softmax works over, and of a row of an embedding."""
_SHORT_S = 100e-6
_IN_A_ROW = 8
_ROTATED_BYTES = 64 * 2**20
_CYCLES_PER_S = 2.2e9
"""Above the clock of today's devices, so that they are busy for at least the time meant."""
_SPIN_OVER_LAUNCH = 2.0
_LONGEST_SPIN_S = 5e-3
_TARGET_S = 0.03
_FEWEST, _MOST = 3, 30
_MOST_HEADS = 32


@dataclass(frozen=True)
class Timing:
    """How long one kernel takes on the device, without its launch."""

    time_s: float
    """Median."""
    spread: float
    """(90th − 10th percentile) ÷ median of the repeats."""
    repeats: int


class Stopwatch(Protocol):
    """The clock of one device."""

    device: torch.device

    def elapsed_s(self, calls: list[Call]) -> float:
        """Return the seconds of these calls one after another."""
        ...


class CudaStopwatch:
    """Device events around the calls, the L2 cache flushed before them."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size or 2**26
        self._flushed = torch.empty(2 * l2_bytes, dtype=torch.int8, device=self.device)
        # No public call keeps a device busy; without it short kernels are timed with their launch.
        self._spin: Callable[[int], None] | None = getattr(torch.cuda, "_sleep", None)
        self._launch_s = 1e-3

    def elapsed_s(self, calls: list[Call]) -> float:
        """Return the seconds of these calls one after another."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flushed.zero_()
        if self._spin is not None:
            spin_s = min(_LONGEST_SPIN_S, _SPIN_OVER_LAUNCH * self._launch_s * len(calls))
            self._spin(int(spin_s * _CYCLES_PER_S))
        start.record()
        started_s = time.perf_counter()
        for call in calls:
            call()
        # What the host took this time is what it will take the next.
        self._launch_s = (time.perf_counter() - started_s) / len(calls)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3


class HostStopwatch:
    """The host's clock, for a machine without a GPU; operands rotate, so caches hold few."""

    device = torch.device("cpu")

    def elapsed_s(self, calls: list[Call]) -> float:
        """Return the seconds of these calls one after another."""
        start_s = time.perf_counter()
        for call in calls:
            call()
        return time.perf_counter() - start_s


def make_stopwatch(device: str) -> Stopwatch:
    """Return the stopwatch of "cuda" or "cpu"."""
    return CudaStopwatch() if device == "cuda" else HostStopwatch()


def timed(point: Point, stopwatch: Stopwatch) -> Timing:
    """Return how long this kernel takes.

    Raises:
        RuntimeError: torch cannot run it here, or the memory is too small.
    """
    _set_tf32(point.dtype == "tf32")
    sets = max(1, min(_IN_A_ROW, int(_ROTATED_BYTES / max(1.0, point.size_bytes))))
    calls = [make_call(point, stopwatch.device) for _ in range(sets)]
    stopwatch.elapsed_s(calls)
    first_s = min(stopwatch.elapsed_s(calls[:1]) for _ in range(2))
    in_a_row = calls if first_s < _SHORT_S else None
    most = _MOST if in_a_row is None else max(_FEWEST, _MOST // len(calls))
    repeats = max(_FEWEST, min(most, int(_TARGET_S / max(first_s, 1e-6))))
    times_s = sorted(
        stopwatch.elapsed_s(in_a_row) / sets if in_a_row else stopwatch.elapsed_s([calls[i % sets]])
        for i in range(repeats)
    )
    middle_s = _at(times_s, 0.5)
    return Timing(middle_s, (_at(times_s, 0.9) - _at(times_s, 0.1)) / middle_s, repeats)


def make_call(point: Point, device: torch.device) -> Call:
    """Return a function that runs the kernel once, on operands of its own."""
    if point.part == "gemm":
        return _fp8_gemm(point, device) if point.dtype == "fp8" else _gemm(point, device)
    if point.part == "batched":
        return _batched(point, device)
    if point.part.startswith("attention"):
        return _attention(point, device)
    if point.part.startswith("convolution"):
        return _convolution(point, device)
    return _STREAMS[point.dtype](point.shape[0], device)


def _gemm(point: Point, device: torch.device) -> Call:
    m, n, k = point.shape
    dtype = _TORCH_DTYPES[point.dtype]
    x, weight = _random(device, dtype, m, k), _random(device, dtype, n, k).t()
    out = torch.empty(m, n, dtype=dtype, device=device)
    return lambda: torch.mm(x, weight, out=out)


def _fp8_gemm(point: Point, device: torch.device) -> Call:
    m, n, k = point.shape
    x, weight = (
        _random(device, torch.bfloat16, rows, k).to(torch.float8_e4m3fn) for rows in (m, n)
    )
    one = torch.ones((), device=device)
    product = torch.ops.aten._scaled_mm.default  # torch's only way to an fp8 product.
    # Fast accumulation, as fp8 recipes run the forward pass.
    return lambda: product(x, weight.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _batched(point: Point, device: torch.device) -> Call:
    m, n, k, batch = point.shape
    dtype = _TORCH_DTYPES[point.dtype]
    x, y = _random(device, dtype, batch, m, k), _random(device, dtype, batch, k, n)
    out = torch.empty(batch, m, n, dtype=dtype, device=device)
    return lambda: torch.bmm(x, y, out=out)


def _attention(point: Point, device: torch.device) -> Call:
    head_dim, batch_heads, seq, group = point.shape
    heads = next(
        h for h in range(min(batch_heads, _MOST_HEADS), 0, -1) if batch_heads % h == h % group == 0
    )
    batch, dtype = batch_heads // heads, _TORCH_DTYPES[point.dtype]
    query = _random(device, dtype, batch, heads, seq, head_dim)
    key, value = (_random(device, dtype, batch, heads // group, seq, head_dim) for _ in range(2))

    def forward() -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=group > 1
        )

    return _gradients(forward, query, key, value) if "backward" in point.part else forward


def _convolution(point: Point, device: torch.device) -> Call:
    batch, c_in, c_out, kernel, image, stride, groups = point.shape
    dtype = _TORCH_DTYPES[point.dtype]
    x = _random(device, dtype, batch, c_in, image, image)
    weight = _random(device, dtype, c_out, c_in // groups, kernel, kernel)

    def forward() -> torch.Tensor:
        return functional.conv2d(x, weight, stride=stride, padding=kernel // 2, groups=groups)

    return _gradients(forward, x, weight) if "backward" in point.part else forward


def _gradients(forward: Callable[[], torch.Tensor], *inputs: torch.Tensor) -> Call:
    """Return the backward pass alone, of a forward pass that runs now."""
    for tensor in inputs:
        tensor.requires_grad_()
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def _pointwise(elements: int, device: torch.device) -> Call:
    x = _random(device, torch.float32, elements)
    out = torch.empty_like(x)
    return lambda: torch.mul(x, 1.5, out=out)


def _norm(elements: int, device: torch.device) -> Call:
    x = _random(device, torch.float32, elements // _ROW, _ROW)
    return lambda: functional.layer_norm(x, (_ROW,))


def _softmax(elements: int, device: torch.device) -> Call:
    x = _random(device, torch.float32, elements // _ROW, _ROW)
    return lambda: torch.softmax(x, -1)


def _copy(elements: int, device: torch.device) -> Call:
    x = _random(device, torch.float32, elements)
    out = torch.empty_like(x)
    return lambda: out.copy_(x)


def _embedding(elements: int, device: torch.device) -> Call:
    table = _random(device, torch.float32, elements // _ROW, _ROW)
    rows = torch.randperm(len(table), device=device)
    return lambda: functional.embedding(rows, table)


def _optimizer(elements: int, device: torch.device) -> Call:
    parameter = torch.nn.Parameter(_random(device, torch.float32, elements))
    parameter.grad = torch.randn_like(parameter)
    return torch.optim.AdamW([parameter], fused=True).step


_STREAMS: dict[str, Callable[[int, torch.device], Call]] = {
    "pointwise": _pointwise,
    "norm": _norm,
    "softmax": _softmax,
    "copy": _copy,
    "embedding": _embedding,
    "optimizer": _optimizer,
}


def _set_tf32(allowed: bool) -> None:
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def _random(device: torch.device, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    # Values matter: power, and with it the clock, depends on how many bits flip.
    return torch.randn(*shape, device=device, dtype=dtype)


def _at(ordered: list[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
