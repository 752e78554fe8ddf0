"""From one aten operation to one `Kernel` row: kind, dims, FLOPs and the bytes it must move.

Bytes are those of the distinct elements an operation touches: an expanded operand counts its
storage, an embedding its gathered rows, a view nothing. FLOPs are those of matrix products,
attention, convolutions and RNNs; a causal attention counts half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch

from ..passes.optimizers import multi_tensor_launches
from ..profile import Affine, DtypeClass, Kernel, KernelKind


def words(text: str) -> frozenset[str]:
    """Return the words of a text, as a set of names."""
    return frozenset(text.split())


class TensorShape(NamedTuple):
    """What an operation knows of a tensor: shape, strides and dtype."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Return the bytes of the distinct elements: expanded dimensions count once."""
        touched = 1
        for size, stride in zip(self.shape, self.stride, strict=True):
            if stride or not size:
                touched *= size
        return touched * self.dtype.itemsize


class Call(NamedTuple):
    """One operation: its overload, arguments (tensors as shapes) and outputs."""

    func: Any
    args: tuple[Any, ...]
    outs: tuple[TensorShape, ...]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """One kernel at one micro-batch size; the numbers of a `Kernel`."""

    kind: KernelKind
    op: str
    dims: dict[str, int] = field(default_factory=dict)
    dtype: DtypeClass
    flops: int = 0
    bytes_read: int
    bytes_written: int
    launches: int = 1
    causal: bool = False
    backward: bool = False


NO_KERNEL = words(
    """empty empty_strided empty_like new_empty new_empty_strided empty_permuted detach alias
    lift lift_fresh _local_scalar_dense is_same_size _version is_pinned resize_ set_ _reshape_alias
    record_stream sym_size sym_stride sym_numel dense_dim sparse_dim"""
)
"""Operations that are no view and yet launch nothing."""


def count(call: Call) -> Counts:
    """Return the kind, dims, FLOPs and bytes of one call."""
    name = op_name(call.func)
    tensors = list(_tensors(call.args))
    read, written = _traffic(call, name)
    base = Counts(
        kind=kind_of(name),
        op=name,
        dtype=_dtype_class(tensors, call.outs),
        bytes_read=read,
        bytes_written=written,
        dims={"elements": max((t.elements for t in (*call.outs, *tensors)), default=0)},
        launches=_foreach_launches(call) if name.startswith(("_foreach", "_fused_")) else 1,
    )
    special = _SPECIAL.get(name)
    return special(call, base) if special else base


def affine(small: Counts, large: Counts, sizes: tuple[int, int]) -> dict[str, Any]:
    """Return the numbers of a `Kernel` from its counts at two micro-batch sizes."""
    return {
        "kind": small.kind,
        "op": small.op,
        "dtype": small.dtype,
        "causal": small.causal,
        "backward": small.backward,
        "launches": small.launches,
        "dims": {key: line(value, large.dims[key], sizes) for key, value in small.dims.items()},
        "flops": line(small.flops, large.flops, sizes),
        "bytes_read": line(small.bytes_read, large.bytes_read, sizes),
        "bytes_written": line(small.bytes_written, large.bytes_written, sizes),
    }


def line(small: int, large: int, sizes: tuple[int, int]) -> Affine:
    """Return the affine law through two readings; whole numbers wherever they are."""
    rise, run = large - small, sizes[1] - sizes[0]
    slope = rise // run if rise % run == 0 else rise / run
    return Affine(small - slope * sizes[0], slope)


def make_kernel(numbers: dict[str, Any], *, module: str, linear: bool) -> Kernel:
    """Return the `Kernel` of these numbers, launched by this module."""
    return Kernel(**numbers, module=module, linear=linear and numbers["kind"] == "gemm")


@cache
def op_name(func: Any) -> str:
    """Return the name of an operation without namespace, overload or in-place underscore."""
    name = func._schema.name.split("::")[-1]
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return name


def all_arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments in the order of the schema, defaults filled in."""
    known = _parameters(func)
    rest = known[len(args) :]
    return (*args, *(kwargs.get(name, default) for name, default in rest))


@cache
def _parameters(func: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (argument.name, argument.default_value if argument.has_default_value() else None)
        for argument in func._schema.arguments
    )


# --- kinds -------------------------------------------------------------------------------------

_KINDS: dict[KernelKind, frozenset[str]] = {
    "gemm": words("mm addmm bmm baddbmm addbmm mv addmv dot vdot _grouped_mm _scaled_mm addr"),
    "norm": words(
        """native_layer_norm native_layer_norm_backward native_batch_norm native_batch_norm_backward
        _native_batch_norm_legit cudnn_batch_norm cudnn_batch_norm_backward native_group_norm
        native_group_norm_backward _batch_norm_with_update batch_norm_backward rms_norm
        rms_norm_backward _fused_rms_norm _fused_rms_norm_backward
        _weight_norm_interface"""
    ),
    "softmax": words(
        """_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data nll_loss_forward
        nll_loss_backward nll_loss2d_forward nll_loss2d_backward logsumexp
        _safe_softmax"""
    ),
    "reduction": words(
        """sum mean prod amax amin max min argmax argmin any all var std var_mean norm
        linalg_vector_norm cumsum cumprod topk sort argsort count_nonzero median kthvalue
        std_mean"""
    ),
    "embedding": words(
        """embedding embedding_dense_backward _embedding_bag _embedding_bag_dense_backward
        _embedding_bag_backward embedding_bag gather index_select index index_put _index_put_impl
        index_add scatter scatter_add scatter_reduce index_copy
        _embedding_bag_forward_only _unsafe_index _unsafe_index_put take"""
    ),
    "copy": words(
        """clone copy _to_copy cat stack contiguous fill zero zeros ones full zeros_like ones_like
        full_like new_zeros new_ones new_full constant_pad_nd repeat flip roll
        slice_backward select_backward slice_scatter select_scatter as_strided_scatter tril triu
        arange one_hot repeat_interleave reflection_pad2d replication_pad2d unfold_backward
        diagonal_backward im2col col2im scalar_tensor eye linspace
        _foreach_copy _foreach_zero"""
    ),
    "attention": frozenset(
        f"_scaled_dot_product_{kind}_attention{end}"
        for kind in ("flash", "efficient", "cudnn", "flash_attention_for_cpu", "fused")
        for end in ("", "_backward")
    )
    | {
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    },
    "convolution": words("convolution convolution_backward _convolution cudnn_convolution"),
    "rnn": words("_cudnn_rnn _cudnn_rnn_backward"),
}
_KIND_OF: dict[str, KernelKind] = {name: kind for kind, names in _KINDS.items() for name in names}


def kind_of(name: str) -> KernelKind:
    """Return the kind of the kernel that an operation of this name launches."""
    if name in _KIND_OF:
        return _KIND_OF[name]
    return "reduction" if "pool" in name else "pointwise"


def _dtype_class(tensors: list[TensorShape], outs: tuple[TensorShape, ...]) -> DtypeClass:
    floats = [t for t in (*tensors, *outs) if t.dtype.is_floating_point or t.dtype.is_complex]
    if not floats:
        return "integer"
    widest = max(
        (t for t in floats if t.shape) if any(t.shape for t in floats) else floats,
        key=lambda t: (t.elements, t.dtype.itemsize),
    )
    if widest.dtype in (torch.float64, torch.complex128):
        return "fp64"
    return "16bit" if widest.dtype in (torch.float16, torch.bfloat16) else "fp32"


# --- bytes -------------------------------------------------------------------------------------

_WRITES_ONLY = words(
    "copy fill zero normal uniform bernoulli random exponential _foreach_copy _foreach_zero"
)


def _traffic(call: Call, name: str) -> tuple[int, int]:
    """Return bytes read and written: inputs, in-place operands and fresh outputs, each once."""
    read = written = 0
    seen: set[int] = set()
    for index, argument in enumerate(call.args):
        mutated = index < len(_mutated(call.func)) and _mutated(call.func)[index]
        for tensor in _tensors((argument,)):
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            if mutated:
                written += tensor.bytes
            if not mutated or name not in _WRITES_ONLY:
                read += tensor.bytes
    return read, written + sum(out.bytes for out in call.outs)


@cache
def _mutated(func: Any) -> tuple[bool, ...]:
    return tuple(
        argument.alias_info is not None and argument.alias_info.is_write
        for argument in func._schema.arguments
    )


def _tensors(values: Any) -> Iterator[TensorShape]:
    for value in values:
        if isinstance(value, TensorShape):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)


# --- matrix products ---------------------------------------------------------------------------


def _gemm(base: Counts, batch: int, m: int, n: int, k: int) -> Counts:
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
    transposed, groups = call.args[6], call.args[8]
    return _convolution_counts(base, input, weight, out, transposed, groups, passes=1)


def _convolution_backward(call: Call, base: Counts) -> Counts:
    grad, input, weight = call.args[:3]
    transposed, groups, mask = call.args[7], call.args[9], call.args[10]
    passes = int(mask[0]) + int(mask[1])
    counts = _convolution_counts(base, input, weight, grad, transposed, groups, passes=passes)
    return replace(counts, backward=True, launches=max(1, passes + int(mask[2])))


def _convolution_counts(
    base: Counts,
    input: TensorShape,
    weight: TensorShape,
    out: TensorShape,
    transposed: bool,
    groups: int,
    *,
    passes: int,
) -> Counts:
    """2 x (products per output) x outputs; transposed convolutions count per input pixel.

    CuDNN runs channels-last where the input or the weight is, and copies what is not.
    """
    kernel_elements = prod(weight.shape[2:])
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
            "kernel_elements": kernel_elements,
            "out_pixels": pixels,
            "groups": groups,
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


# --- optimizers --------------------------------------------------------------------------------


def _foreach_launches(call: Call) -> int:
    """Return the launches of a multi-tensor kernel."""
    lists = [a for a in call.args if isinstance(a, tuple) and a and isinstance(a[0], TensorShape)]
    if not lists:
        return 1
    made = 1 if call.outs else 0
    return multi_tensor_launches([t.elements for t in lists[0]], len(lists) + made)


_SPECIAL: dict[str, Callable[[Call, Counts], Counts]] = {
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
