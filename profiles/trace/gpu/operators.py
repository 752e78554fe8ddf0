"""Operations that a GPU runs as one kernel and that torch has no shape rule or autograd rule for.

On meta tensors torch would take `rms_norm` apart and has no backward for a cuDNN RNN. Each is here
one operator of the library `gpuplan`, or a shape rule, that the recorder sees as one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..kernels.operations import op_name

RNN_RELU, RNN_TANH, LSTM, GRU = range(4)
"""Modes of `aten::_cudnn_rnn` (cudnnRNNMode_t)."""

_library = torch.library.Library("gpuplan", "DEF")
_library.define("rms_norm(Tensor x, Tensor? weight, int norm_dims) -> (Tensor, Tensor)")
_library.define(
    "rms_norm_backward(Tensor grad, Tensor x, Tensor rstd, Tensor? weight) -> (Tensor, Tensor?)"
)


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, norm_dims: int) -> torch.Tensor:
    """Return x normalized over its last `norm_dims` dimensions, as one fused kernel."""
    return _RmsNorm.apply(x, weight, norm_dims)  # pyright: ignore[reportReturnType]


class _RmsNorm(torch.autograd.Function):
    """aten::_fused_rms_norm on CUDA saves the input, the weight and 1 / rms (fp32)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, norm_dims: int) -> Any:
        out, rstd = torch.ops.gpuplan.rms_norm(x, weight, norm_dims)
        ctx.save_for_backward(x, rstd, weight)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, rstd, weight = ctx.saved_tensors
        grad_x, grad_weight = torch.ops.gpuplan.rms_norm_backward(grads[0], x, rstd, weight)
        return grad_x, grad_weight if ctx.needs_input_grad[1] else None, None


def _rms_norm_shapes(
    x: torch.Tensor, weight: torch.Tensor | None, norm_dims: int
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = (*x.shape[: x.dim() - norm_dims], *(1,) * norm_dims)
    return torch.empty_like(x), x.new_empty(rows, dtype=torch.float32)


def _rms_norm_backward_shapes(
    grad: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    return torch.empty_like(x), None if weight is None else torch.empty_like(weight)


def _rnn_backward_shapes(
    input: torch.Tensor,
    weight: list[torch.Tensor],
    weight_stride0: int,
    weight_buf: torch.Tensor,
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    *rest: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
    grads = [torch.empty_like(each) for each in weight]
    return (
        torch.empty_like(input),
        torch.empty_like(hx),
        None if cx is None else torch.empty_like(cx),
        grads,
    )


_library.impl("rms_norm", _rms_norm_shapes, "Meta")
_library.impl("rms_norm_backward", _rms_norm_backward_shapes, "Meta")


def _rnn_shapes(
    input: torch.Tensor,
    weight: list[torch.Tensor],
    weight_stride0: int,
    weight_buf: torch.Tensor,
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    *rest: Any,
) -> tuple[torch.Tensor, ...]:
    """The reserve holds what the backward pass needs: gates, states and outputs of every layer.

    cuDNN does not publish its size; this is the least that its equations need (cuDNN developer
    guide, cudnnRNNForward), so a lower bound.
    """
    directions = 2 if bidirectional else 1
    steps, batch = input.shape[:2] if not batch_first else (input.shape[1], input.shape[0])
    out_size = proj_size or hidden_size
    shape = (batch, steps) if batch_first else (steps, batch)
    output = input.new_empty((*shape, out_size * directions))
    states = (num_layers * directions, batch)
    cell = hx.new_empty((*states, hidden_size) if cx is not None else 0)
    kept = {LSTM: 6, GRU: 5}.get(mode, 1) * hidden_size
    bytes_kept = steps * batch * num_layers * directions * kept * input.element_size()
    reserve = input.new_empty(bytes_kept if train else 0, dtype=torch.uint8)
    return output, hx.new_empty((*states, out_size)), cell, reserve, weight_buf.new_empty(0)


def _mm_shapes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _refuse_mixed_dtypes(a, b)
    return torch.ops.aten.mm.default(a, b)


def _addmm_shapes(
    bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **factors: Any
) -> torch.Tensor:
    _refuse_mixed_dtypes(a, b, bias)
    return torch.ops.aten.addmm.default(bias, a, b, **factors)


def _refuse_mixed_dtypes(first: torch.Tensor, *others: torch.Tensor) -> None:
    """Raise RuntimeError where a GPU does: on meta tensors torch multiplies any two dtypes."""
    for other in others:
        if other.dtype != first.dtype:
            raise _mixed("a product", first, other)


def _mixed(what: str, one: torch.Tensor, other: torch.Tensor) -> RuntimeError:
    names = (str(tensor.dtype).removeprefix("torch.") for tensor in (one, other))
    return RuntimeError(f"{what} takes tensors of one dtype, but got {' and '.join(names)}")


def _writes_one_dtype(func: Any, source: int) -> Callable[..., torch.Tensor]:
    """Return the rule of an operation that writes rows of the dtype that they are written into.

    torch checks that on real tensors only (aten TensorAdvancedIndexing.cpp: `index_put_`,
    `index_add_meta`, `index_copy_`, `put_`), and no autocast casts for those that write in place.

    Args:
        func: the operation, which writes into its first argument or a copy of it.
        source: position of what it writes.
    """

    def shapes(*args: Any, **kwargs: Any) -> torch.Tensor:
        if args[0].dtype != args[source].dtype:
            raise _mixed(op_name(func), args[0], args[source])
        return func(*args, **kwargs)

    return shapes


def _convolution_shapes(*args: Any) -> torch.Tensor:
    """CuDNN keeps channels_last if the input or the weight has it; torch's own rule forgets."""
    _refuse_mixed_dtypes(args[0], args[1])
    out = torch.ops.aten.convolution.default(*args)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if out.dim() in formats and (_is_channels_last(args[0]) or _is_channels_last(args[1])):
        return out.contiguous(memory_format=formats[out.dim()])
    return out


def _is_channels_last(tensor: torch.Tensor) -> bool:
    """Return whether the strides say channels_last (torch c10/core/MemoryFormat.h)."""
    strides, sizes = tensor.stride(), tensor.shape
    if not strides[1]:
        return False
    least = 0
    for dim in (1, *range(len(sizes) - 1, 1, -1), 0):
        if strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(1, sizes[dim])
    return True


def _grouped_mm_shapes(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Shape as in torch's rule, for every dtype: a GPU runs others than bf16 group by group."""
    groups = offs.shape[0] if offs is not None else b.shape[0]
    if a.dim() == 2 and b.dim() == 2:
        shape = (groups, a.shape[0], b.shape[1])
    elif a.dim() == 2 or b.dim() == 2:
        shape = (a.shape[-2], b.shape[-1])
    else:
        shape = (a.shape[0], a.shape[1], b.shape[2])
    return a.new_empty(shape, dtype=out_dtype or a.dtype)


def _ctc_loss_shapes(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor | list[int],
    target_lengths: torch.Tensor | list[int],
    *rest: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses, and what the backward pass keeps of the longest target: two states a label.

    Where the lengths are a tensor, the longest target is as long as its row; of targets in one row,
    which say no more than their sum, it is as long as the mean.
    """
    batch = log_probs.shape[1] if log_probs.dim() == 3 else 1
    longest = targets.shape[-1] if targets.dim() == 2 else math.ceil(targets.numel() / batch)
    if not isinstance(target_lengths, torch.Tensor):
        longest = max(target_lengths)
    loss = log_probs.new_empty(log_probs.shape[1:-1])
    return loss, log_probs.new_empty((batch, log_probs.shape[0], 2 * longest + 1))


def _ctc_loss_backward_shapes(
    grad: torch.Tensor, log_probs: torch.Tensor, *rest: Any
) -> torch.Tensor:
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)


_aten: Any = torch.ops.aten
WRITTEN_FROM = {
    _aten.index_add: 3,
    _aten.index_add_: 3,
    _aten.index_copy: 3,
    _aten.index_copy_: 3,
    _aten.index_reduce: 3,
    _aten.index_reduce_: 3,
    _aten.index_put: 2,
    _aten.index_put_: 2,
    _aten.put: 2,
    _aten.put_: 2,
}
"""Operations that write values of one dtype, and the position of those among the arguments."""
SHAPE_RULES = {
    **{one.default: _writes_one_dtype(one.default, at) for one, at in WRITTEN_FROM.items()},
    torch.ops.aten._ctc_loss.default: _ctc_loss_shapes,
    torch.ops.aten._ctc_loss.Tensor: _ctc_loss_shapes,
    torch.ops.aten._ctc_loss_backward.default: _ctc_loss_backward_shapes,
    torch.ops.aten._ctc_loss_backward.Tensor: _ctc_loss_backward_shapes,
    torch.ops.aten._grouped_mm.default: _grouped_mm_shapes,
    torch.ops.aten.mm.default: _mm_shapes,
    torch.ops.aten.addmm.default: _addmm_shapes,
    torch.ops.aten.convolution.default: _convolution_shapes,
    torch.ops.aten._cudnn_rnn.default: _rnn_shapes,
    torch.ops.aten._cudnn_rnn_backward.default: _rnn_backward_shapes,
}
"""Operations for which torch has no rule of its own, or not all of it, and the rule."""
