"""Torch functions that run other kernels on a GPU than on meta tensors, or ask for a device."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any, cast

import torch

from ..torch_private import without_overrides
from . import operators
from .recurrent import pack_whole, pad_whole, rnn
from .sparse import new_sparse, new_tensor
from .tensor_types import META, tensor_type

GPU = torch.device("cuda", 0)
LOST_ROWS = (
    "gives attention a tensor that is transposed in its last dimension, which rules the fused"
    " kernels out: what runs instead writes every score to memory. .contiguous() before the call"
    " brings them back"
)
_WITHOUT_A_MASK = (
    "is_causal=True does what a causal mask does; for others there is"
    " torch.nn.attention.flex_attention"
)
_WITHOUT_PADDING = (
    'attn_implementation="flash_attention_2" leaves out what attention_mask hides, and keeps apart'
    " what is packed"
)
FROM_DATA = frozenset(("tensor", "as_tensor", "asarray", "from_numpy", "frombuffer"))


def attention_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> str:
    """Return "flash", "efficient" or "math": what `scaled_dot_product_attention` runs on a GPU.

    Source: torch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (default priority order,
    compute capability 8.0 or later; `check_last_dim_stride_equals_1_dense` of every fused kernel).
    """
    in_rows = _lie_in_rows(query, key, value, mask)
    return _kernel_of_rows(query, key, value, mask) if in_rows else "math"


def _lie_in_rows(*tensors: torch.Tensor | None) -> bool:
    """Return whether the elements of each last dimension lie side by side."""
    return all(one is None or one.stride(-1) == 1 for one in tensors)


def _kernel_of_rows(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> str:
    same_heads = query.shape[1:2] == key.shape[1:2]
    half = query.dtype in (torch.float16, torch.bfloat16)
    head_dim = query.shape[-1]
    if query.dim() != 4 or query.dtype == torch.float64:
        return "math"
    if half and mask is None and head_dim <= 256 and head_dim == value.shape[-1]:
        return "flash"
    if same_heads and not (mask is not None and mask.requires_grad):
        return "efficient"
    return "math"


def attention(
    _func: Callable[..., Any],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Run the kernel that a GPU takes for `scaled_dot_product_attention`, with its arguments."""
    kernel = attention_kernel(query, key, value, attn_mask)
    aten = torch.ops.aten
    if kernel == "math":
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal,
            scale=scale, enable_gqa=enable_gqa,
        )[0]  # fmt: skip
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if kernel == "flash":
        padding = -query.shape[-1] % 8
        if padding:
            query, key, value = (
                torch.nn.functional.pad(each, (0, padding)) for each in (query, key, value)
            )
        out = aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
        return out[..., : out.shape[-1] - padding] if padding else out
    if attn_mask is not None:
        attn_mask = _additive(attn_mask, query).expand(*query.shape[:3], key.shape[2])
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, needs_grad, dropout_p, is_causal, scale=scale
    )[0]


def lost_flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *_: Any,
    pads: bool = False,
    **__: Any,
) -> str | None:
    """Return what a call does that alone rules faster kernels out; None for all others.

    Takes the arguments of `scaled_dot_product_attention`, and whether a batch is padded or packed.
    """
    if not _lie_in_rows(query, key, value):
        return None if _kernel_of_rows(query, key, value, attn_mask) == "math" else LOST_ROWS
    if attn_mask is None or attention_kernel(query, key, value, None) != "flash":
        return None
    kernel = attention_kernel(query, key, value, attn_mask)
    instead = "writes every score to memory" if kernel == "math" else "is slower, and reads it"
    said = f"gives attention a mask, which rules the flash kernel out: what runs instead {instead}."
    return f"{said} {_WITHOUT_PADDING if pads else _WITHOUT_A_MASK}"


def _additive(mask: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    if mask.dtype != torch.bool:
        return mask
    zero = torch.zeros((), dtype=query.dtype, device=query.device)
    return torch.where(mask, zero, -math.inf)


def _dropout(func: Callable[..., Any], input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if not train or p in (0, 1) or not input.is_meta:
        return func(input, p, train)
    return torch.native_dropout(input, p, True)[0]


def _rms_norm(
    func: Callable[..., Any],
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    if not input.is_meta or (weight is not None and weight.dtype != input.dtype):
        return func(input, normalized_shape, weight, eps)
    return operators.rms_norm(input, weight, len(normalized_shape))


def backward(
    loss: torch.Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Do what `Tensor.backward` does, for a call that a torch-function mode has taken."""
    run = without_overrides(cast(FunctionType, torch.autograd.backward))
    run(loss, gradient, retain_graph, create_graph, inputs=inputs)


def _to(func: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    args = tuple(on_meta(each) if isinstance(each, (str, torch.device)) else each for each in args)
    if "device" in kwargs:
        kwargs["device"] = on_meta(kwargs["device"])
    if tensor.is_meta:
        # The data of a device tensor is unknown on the host as well.
        args = tuple(META if isinstance(each, torch.device) else each for each in args)
        if kwargs.get("device") is not None:
            kwargs["device"] = META
    return func(tensor, *args, **kwargs)


def _cuda(_func: Callable[..., Any], tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor if tensor.is_meta else tensor.to(META)


def _cpu(_func: Callable[..., Any], tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor


def _copy_into(
    func: Callable[..., Any], tensor: torch.Tensor, source: Any, *rest: Any, **named: Any
) -> torch.Tensor:
    """Copy in place; a host tensor that takes a device tensor's values has unknown ones after it.

    A small buffer is made on the host, and a large weight beside it is not: values worked out on
    "the device of the weight" are then copied into the buffer (timm's Swin V2).
    """
    if tensor.is_meta or not isinstance(source, torch.Tensor) or not source.is_meta:
        return func(tensor, source, *rest, **named)
    source.expand(tensor.shape)  # sizes that do not match are torch's to refuse
    if not tensor._is_view():
        # A tensor with weak references cannot be swapped: it keeps values that nobody should read.
        with suppress(RuntimeError):
            torch.utils.swap_tensors(tensor, _without_data(tensor))
    return tensor


def set_data(func: Callable[..., Any], tensor: torch.Tensor, data: torch.Tensor) -> Any:
    """Do what `parameter.data = …` does, whose new values may be on the host (`torch.tensor(…)`).

    A layer that is made on the device may be filled from numpy before it is moved (DLRM).
    """
    if tensor.is_meta == data.is_meta:
        return func(tensor, data)
    if tensor.is_meta:
        return func(tensor, data.to(META))
    torch.utils.swap_tensors(tensor, _without_data(tensor))
    return func(tensor, data)


def _without_data(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty_like(tensor, device=META, requires_grad=tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, tensor.requires_grad)
    return empty


def _from_data(func: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.Tensor:
    if kwargs.get("device") is not None:
        kwargs["device"] = on_meta(kwargs["device"])
    return func(*args, **kwargs)


REPLACED: dict[str, Callable[..., Any]] = {
    "new": new_tensor,
    "sparse_coo_tensor": new_sparse,
    "scaled_dot_product_attention": attention,
    "dropout": _dropout,
    "rms_norm": _rms_norm,
    "lstm": rnn(operators.LSTM),
    "gru": rnn(operators.GRU),
    "rnn_tanh": rnn(operators.RNN_TANH),
    "rnn_relu": rnn(operators.RNN_RELU),
    "_pack_padded_sequence": pack_whole,
    "_pad_packed_sequence": pad_whole,
    "to": _to,
    "type": tensor_type,
    "copy_": _copy_into,
    "cuda": _cuda,
    "cpu": _cpu,
    "pin_memory": _cpu,
    **dict.fromkeys(FROM_DATA, _from_data),
}


def _device(tensor: torch.Tensor) -> torch.device:
    return GPU if tensor.is_meta else tensor.device


SET_DATA: Any = torch.Tensor.data.__set__  # pyright: ignore[reportAttributeAccessIssue]
GETTERS: dict[Any, Callable[[torch.Tensor], Any]] = {
    torch.Tensor.device.__get__: _device,  # pyright: ignore[reportAttributeAccessIssue]
    torch.Tensor.is_cuda.__get__: lambda tensor: tensor.is_meta,  # pyright: ignore[reportAttributeAccessIssue]
    torch.Tensor.is_meta.__get__: lambda tensor: False,  # pyright: ignore[reportAttributeAccessIssue]
}


def on_meta(device: Any) -> Any:
    """Return a device as a call is given it: meta for every GPU, the host as it is."""
    if device is None or isinstance(device, int):
        return META if isinstance(device, int) else None
    found = torch.device(device) if isinstance(device, str) else device
    return META if found.type == "cuda" else found
