"""Dims, FLOPs and bytes of the operations whose shapes alone do not say them.

FLOPs are those of matrix products, attention, convolutions and RNNs; a causal attention counts
half. A gather moves its gathered rows, not the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...profile import COMPLEX
from .fourier import FOURIER_RULES
from .kernel_numbers import Counts
from .operations import Call, TensorShape

# --- matrix products ---------------------------------------------------------------------------


def _gemm(base: Counts, batch: int, m: int, n: int, k: int) -> Counts:
    """A complex product is the real one of (re, im) with ((re, im), (-im, re)): twice n and k."""
    if base.op.endswith(COMPLEX):
        n, k = 2 * n, 2 * k
    return replace(base, dims={"batch": batch, "m": m, "n": n, "k": k}, flops=2 * batch * m * n * k)


def _mm(first: int) -> Callable[[Call, Counts], Counts]:
    def counts(call: Call, base: Counts) -> Counts:
        a, b = call.args[first], call.args[first + 1]
        return _gemm(base, 1, a.shape[0], b.shape[1], a.shape[1])

    return counts


def _bmm(first: int) -> Callable[[Call, Counts], Counts]:
    def counts(call: Call, base: Counts) -> Counts:
        a, b = call.args[first], call.args[first + 1]
        return _gemm(base, a.shape[0], a.shape[1], b.shape[2], a.shape[2])

    return counts


def _mv(first: int) -> Callable[[Call, Counts], Counts]:
    def counts(call: Call, base: Counts) -> Counts:
        matrix = call.args[first]
        return _gemm(base, 1, matrix.shape[0], 1, matrix.shape[-1])

    return counts


def _dot(call: Call, base: Counts) -> Counts:
    return _gemm(base, 1, 1, 1, call.args[0].elements)


def _addr(call: Call, base: Counts) -> Counts:
    return _gemm(base, 1, call.args[1].elements, call.args[2].elements, 1)


def _grouped_mm(call: Call, base: Counts) -> Counts:
    """Groups of rows (2-D x 3-D), groups of the inner dimension (2-D x 2-D), or plain (3-D)."""
    a, b = call.args[0], call.args[1]
    if len(a.shape) == 3 and len(b.shape) == 3:
        return _gemm(base, a.shape[0], a.shape[1], b.shape[2], a.shape[2])
    if len(b.shape) == 3:
        groups = b.shape[0]
        return replace(
            _gemm(base, groups, a.shape[0] // groups, b.shape[2], a.shape[1]),
            flops=2 * a.shape[0] * a.shape[1] * b.shape[2],
        )
    groups = call.outs[0].shape[0] if len(call.outs[0].shape) == 3 else b.shape[0]
    flops = 2 * a.shape[-2] * a.shape[-1] * b.shape[-1]
    if len(a.shape) == 3:
        return replace(
            _gemm(base, groups, a.shape[1], b.shape[1] // groups, a.shape[2]), flops=flops
        )
    return replace(_gemm(base, groups, a.shape[0], b.shape[1], a.shape[1] // groups), flops=flops)


# --- attention ---------------------------------------------------------------------------------

_CAUSAL_ARGUMENT = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 7,
}


def _attention(call: Call, base: Counts) -> Counts:
    """FLOPs of QK^T and PV; the backward kernel does five products instead of two."""
    backward = base.op.endswith("_backward")
    query, key, value = call.args[1:4] if backward else call.args[:3]
    batch, heads, rows, head_dim = query.shape
    columns, value_dim = key.shape[2], value.shape[3]
    causal = bool(call.args[_CAUSAL_ARGUMENT[base.op]])
    score, mix = head_dim, value_dim
    products = 3 * score + 2 * mix if backward else score + mix
    flops = 2 * batch * heads * rows * columns * products
    return replace(
        base,
        dims={
            "batch": batch,
            "heads": heads,
            "kv_heads": key.shape[1],
            "seq_q": rows,
            "seq_kv": columns,
            "head_dim": head_dim,
        },
        flops=flops // 2 if causal else flops,
        causal=causal,
        backward=backward,
        launches=3 if backward else 1,
    )


# --- convolutions and RNNs ---------------------------------------------------------------------


def _convolution(call: Call, base: Counts) -> Counts:
    input, weight, out = call.args[0], call.args[1], call.outs[0]
    filters = _Filters.of(weight, stride=call.args[3], dilation=call.args[5], groups=call.args[8])
    return _convolution_counts(base, input, out, filters, transposed=call.args[6], passes=1)


def _convolution_backward(call: Call, base: Counts) -> Counts:
    grad, input, weight = call.args[:3]
    filters = _Filters.of(weight, stride=call.args[4], dilation=call.args[6], groups=call.args[9])
    mask = call.args[10]
    passes = int(mask[0]) + int(mask[1])
    counts = _convolution_counts(base, input, grad, filters, transposed=call.args[7], passes=passes)
    return replace(counts, backward=True, launches=max(1, passes + int(mask[2])))


@dataclass(frozen=True)
class _Filters:
    """The filters of a convolution, and how they move over its input."""

    weight: TensorShape
    stride: int
    dilation: int
    """Both the product over the sides."""
    groups: int

    @classmethod
    def of(
        cls, weight: TensorShape, *, stride: Sequence[int], dilation: Sequence[int], groups: int
    ) -> _Filters:
        """Return those of an operation, whose steps may be stated once for all sides."""
        sides = len(weight.shape) - 2

        def product(steps: Sequence[int]) -> int:
            return prod(steps if len(steps) == sides else [*steps] * sides)

        return cls(weight, product(stride), product(dilation), groups)

    @property
    def dims(self) -> dict[str, int]:
        """Sizes of a convolution that are the filters' own."""
        sides = self.weight.shape[2:]
        return {
            "kernel_elements": prod(sides),
            "filter_side": max(sides, default=1),
            "stride": self.stride,
            "dilation": self.dilation,
            "groups": self.groups,
        }


def _convolution_counts(
    base: Counts,
    input: TensorShape,
    out: TensorShape,
    filters: _Filters,
    *,
    transposed: bool,
    passes: int,
) -> Counts:
    """2 x (products per output) x outputs; transposed convolutions count per input pixel.

    CuDNN runs channels-last where the input or the weight is, and copies what is not.
    """
    weight = filters.weight
    pixels_of = input if transposed else out
    pixels = prod(pixels_of.shape[2:])
    flops = 2 * input.shape[0] * pixels * weight.elements * passes
    layout, copied = "contiguous", 0
    if _is_channels_last(input) or _is_channels_last(weight):
        layout = "channels_last"
        others = (one for one in (input, out) if not _is_channels_last(one))
        copied = sum(one.bytes for one in others if prod(one.shape[2:]) > 1)
    return replace(
        base,
        op=f"{base.op}.{layout}",
        bytes_read=base.bytes_read + copied,
        bytes_written=base.bytes_written + copied,
        dims={
            "batch": input.shape[0],
            "in_channels": input.shape[1],
            "out_channels": out.shape[1],
            "out_pixels": pixels,
            **filters.dims,
        },
        flops=flops,
    )


def _is_channels_last(tensor: TensorShape) -> bool:
    return len(tensor.shape) > 3 and tensor.stride[1] == 1 and prod(tensor.shape[2:]) > 1


def _rnn(call: Call, base: Counts) -> Counts:
    """Each weight matrix once per step and direction; the backward pass twice that."""
    backward = base.op.endswith("_backward")
    input, weights = call.args[0], call.args[1]
    mode_at = 10 if backward else 6
    hidden, layers = call.args[mode_at + 1], call.args[mode_at + 3]
    batch_first = call.args[mode_at + 4]
    steps = input.shape[1 if batch_first else 0]
    batch = input.shape[0 if batch_first else 1]
    products = sum(w.elements for w in weights if len(w.shape) == 2)
    return replace(
        base,
        dims={
            "batch": batch,
            "steps": steps,
            "input": input.shape[2],
            "hidden": hidden,
            "layers": layers,
        },
        flops=2 * batch * steps * products * (2 if backward else 1),
        backward=backward,
    )


# --- gathers -----------------------------------------------------------------------------------


def _gathered(call: Call, base: Counts) -> Counts:
    """A gather reads the rows that it gives out, and its indices; never the whole table."""
    out = sum(each.bytes for each in call.outs)
    table = call.args[0]
    return replace(base, bytes_read=min(base.bytes_read - table.bytes + out, base.bytes_read))


def _embedding_bag(call: Call, base: Counts) -> Counts:
    weight, indices = call.args[0], call.args[1]
    rows = indices.elements * prod(weight.shape[1:]) * weight.dtype.itemsize
    return replace(base, bytes_read=base.bytes_read - weight.bytes + rows)


def _scattered(source: int) -> Callable[[Call, Counts], Counts]:
    """In place: reads and writes as much of the target as there is to add, not all of it."""

    def counts(call: Call, base: Counts) -> Counts:
        target = call.args[0]
        values = call.args[source] if len(call.args) > source else None
        touched = values.bytes if isinstance(values, TensorShape) else target.bytes
        if call.outs:
            return replace(base, bytes_written=base.bytes_written + touched)
        spared = max(0, target.bytes - touched)
        return replace(
            base,
            bytes_read=max(0, base.bytes_read - spared),
            bytes_written=max(0, base.bytes_written - spared),
        )

    return counts


def _nll_loss(call: Call, base: Counts) -> Counts:
    """One log-probability per target is read; the backward pass writes its zeros besides."""
    scores = call.args[0] if base.op.endswith("forward") else call.args[1]
    return replace(base, bytes_read=max(0, base.bytes_read - scores.bytes))


RULES: dict[str, Callable[[Call, Counts], Counts]] = {
    "mm": _mm(0),
    "addmm": _mm(1),
    "bmm": _bmm(0),
    "baddbmm": _bmm(1),
    "addbmm": _bmm(1),
    "mv": _mv(0),
    "addmv": _mv(1),
    "dot": _dot,
    "vdot": _dot,
    "addr": _addr,
    "_scaled_mm": _mm(0),
    "_grouped_mm": _grouped_mm,
    **dict.fromkeys(_CAUSAL_ARGUMENT, _attention),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **FOURIER_RULES,
    "_cudnn_rnn": _rnn,
    "_cudnn_rnn_backward": _rnn,
    **dict.fromkeys(("embedding", "gather", "index_select", "index", "take"), _gathered),
    **dict.fromkeys(
        ("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward"),
        _nll_loss,
    ),
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "index_put": _scattered(2),
    "index_add": _scattered(3),
    "scatter": _scattered(3),
    "scatter_add": _scattered(3),
    "index_copy": _scattered(3),
}
"""What becomes of the counts of an operation, by its name."""
