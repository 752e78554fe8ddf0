"""From one aten operation to one `Kernel` row: kind, dims, FLOPs and the bytes it must move.

Bytes are those of the distinct elements an operation touches: an expanded operand counts its
storage, an embedding its gathered rows, a view nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ...passes.optimizer_rules import multi_tensor_launches
from ...profile import COMPLEX, DtypeClass, KernelKind
from .fourier import TRANSFORMS
from .kernel_numbers import Counts
from .operations import Call, TensorShape, op_name, tensors_in, words
from .rules import RULES


def count(call: Call) -> Counts:
    """Return the kind, dims, FLOPs and bytes of one call."""
    name = op_name(call.func)
    tensors = list(tensors_in(call.args))
    read, written = _traffic(call, name)
    base = Counts(
        kind=kind_of(name),
        op=name + COMPLEX if _is_complex(name, tensors, call.outs) else name,
        dtype=_dtype_class(tensors, call.outs),
        bytes_read=read,
        bytes_written=written,
        dims={"elements": max((t.elements for t in (*call.outs, *tensors)), default=0)},
        launches=_foreach_launches(call) if name.startswith(("_foreach", "_fused_")) else 1,
    )
    special = RULES.get(name)
    return special(call, base) if special else base


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
    "fft": TRANSFORMS,
}
_KIND_OF: dict[str, KernelKind] = {name: kind for kind, names in _KINDS.items() for name in names}


def kind_of(name: str) -> KernelKind:
    """Return the kind of the kernel that an operation of this name launches."""
    if name in _KIND_OF:
        return _KIND_OF[name]
    return "reduction" if "pool" in name else "pointwise"


def _is_complex(name: str, tensors: list[TensorShape], outs: tuple[TensorShape, ...]) -> bool:
    if name in TRANSFORMS or name.startswith(("_foreach", "_fused_")):
        return False
    return any(tensor.dtype.is_complex for tensor in (*tensors, *outs))


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
        for tensor in tensors_in((argument,)):
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


# --- optimizers --------------------------------------------------------------------------------


def _foreach_launches(call: Call) -> int:
    """Return the launches of a multi-tensor kernel."""
    lists = [a for a in call.args if isinstance(a, tuple) and a and isinstance(a[0], TensorShape)]
    if not lists:
        return 1
    made = 1 if call.outs else 0
    return multi_tensor_launches([t.elements for t in lists[0]], len(lists) + made)
