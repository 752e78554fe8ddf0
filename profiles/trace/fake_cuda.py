"""A machine without a GPU that answers as one with a GPU: what a file asks, what a GPU would run.

Device tensors are meta tensors (shapes and strides, no data) that report `cuda:0`. `Target` is a
torch-function mode: it sees every torch call of the model and replaces those whose GPU version
differs (attention, dropout, RMS norm, RNN), casts under autocast by CUDA's own lists, and sends
`.cuda()`, `.to("cuda")` and `device="cuda"` to meta. It needs neither a GPU nor a CUDA build, and
gives the same trace on both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType, SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from . import gpu_kernels
from .kernels import words
from .sparse import new_sparse, new_tensor
from .torch_private import checkpoint_answers, no_torch_function, without_overrides
from .unknown_value import UnknownValue, is_unknown_in

GPU = torch.device("cuda", 0)
META = torch.device("meta")
TINY_ELEMENTS = 4096
"""CPU factories up to this size run for real, so that `.item()` on a schedule works."""

# CUDA's autocast lists: torch/aten/src/ATen/autocast_mode.h (AT_FORALL_LOWER_PRECISION_FP,
# AT_FORALL_FP32, AT_FORALL_PROMOTE), https://docs.pytorch.org/docs/stable/amp.html. Functions that
# C++ composes of listed ones (cross_entropy_loss, …) are listed beside them.
LOWER_PRECISION = words(
    """conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution
    _convolution prelu addmm addmv addr matmul __matmul__ __rmatmul__ einsum mm mv vecdot
    linalg_vecdot linalg_matmul linear bilinear addbmm baddbmm bmm chain_matmul linalg_multi_dot
    scaled_dot_product_attention lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell inner tensordot"""
)
FLOAT32_OUTPUT = words("prod sum cumprod cumsum softmax log_softmax norm")
"""These read 16 bits and write fp32 in one kernel (the policy fp32_set_opt_dtype)."""
FLOAT32 = words(
    """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow __pow__
    __rpow__ softplus layer_norm native_layer_norm group_norm rms_norm nuclear_norm
    frobenius_norm linalg_norm linalg_vector_norm linalg_matrix_norm cosine_similarity
    poisson_nll_loss cosine_embedding_loss nll_loss nll_loss_nd nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
    soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
    cross_entropy_loss ctc_loss dist pdist cdist renorm logsumexp"""
)
PROMOTED = words(
    """addcdiv addcmul atan2 cross dot grid_sample grid_sampler index_put scatter_add bilinear
    tensordot vdot cat stack"""
)
FACTORIES = words(
    """zeros ones empty full rand randn randint randperm arange range linspace logspace eye
    empty_strided tril_indices triu_indices normal scalar_tensor complex hann_window hamming_window
    bartlett_window blackman_window kaiser_window empty_permuted"""
)
FROM_DATA = frozenset(("tensor", "as_tensor", "asarray", "from_numpy", "frombuffer"))
CAST_FROM = (torch.float16, torch.bfloat16, torch.float32)
"""What autocast casts: other dtypes stay."""
READS_DATA = words("item tolist numpy __bool__ __int__ __float__ __index__ __array__ __contains__")


class Target(TorchFunctionMode):
    """Makes torch calls on meta tensors behave as on the target GPU.

    Args:
        casts: Whether autocast regions cast; without, they are only noted.
        data_dependent: Called with the name of an operation that needs data; must raise.
        paused: Context manager factory under which operations are not recorded.
        keep: Called with every 16-bit copy of a weight that autocast keeps until it ends.
        item: Called for `Tensor.item()`, whose result it returns; None: as any other read.
    """

    def __init__(
        self,
        *,
        casts: bool,
        data_dependent: Callable[[str], Any],
        paused: Callable[[], Any],
        keep: Callable[[torch.Tensor], None],
        item: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        self.casts = casts
        self.autocast_dtype: torch.dtype | None = None
        self.compiles = False
        self._data_dependent = data_dependent
        self._item = item
        self._unknown_values = False
        self._paused = paused
        self._keep = keep
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one torch call as the target would."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            getter = _GETTERS.get(func)
            return getter(args[0]) if getter else func(*args, **kwargs)
        if self._unknown_values and is_unknown_in((args, tuple(kwargs.values()))):
            self._data_dependent(f"Tensor.item, used in {name.strip('_')},")
        if name == "item" and self._item is not None and args[0].is_meta:
            answer = self._item()
            self._unknown_values |= isinstance(answer, UnknownValue)
            return answer
        if name in READS_DATA and args[0].is_meta:
            answer = self._data_dependent(f"Tensor.{name}")
            return bool(answer) if name in ("__bool__", "__contains__") else answer
        if type(func) is FunctionType:
            return self._run_python(func, name, args, kwargs)
        if name == "_assert" and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return func(bool(self._data_dependent("Tensor.__bool__")), *args[1:], **kwargs)
        if name == "_pack_padded_sequence":
            self._data_dependent("pack_padded_sequence")
        if self.casts and torch.is_autocast_enabled("cuda"):
            args, kwargs = self._cast(name, args, kwargs)
        if name in FACTORIES:
            return self._make(func, args, kwargs)
        special = _SPECIAL.get(name)
        if special is not None:
            return special(func, *args, **kwargs)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _on_meta(kwargs["device"])}
        return func(*args, **kwargs)

    def forget_copies(self) -> None:
        """Drop the 16-bit weight copies, as autocast does when its outermost region ends."""
        self._copies.clear()

    def _run_python(
        self, func: FunctionType, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        module = func.__module__
        if module == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        # The pools with an optional second result are not defined where they say they are.
        if func.__globals__["__name__"] in ("torch.nn.functional", "torch.functional"):
            with self:
                return without_overrides(func)(*args, **kwargs)
        if func is torch.Tensor.backward:
            with self:
                return _backward(*args, **kwargs)
        if self.casts and torch.is_autocast_enabled("cuda"):
            args, kwargs = self._cast(name, args, kwargs)
        return func(*args, **kwargs)

    def _make(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type != "cpu":
            return func(*args, **{**kwargs, "device": META})
        on_meta = {**kwargs, "device": META}
        on_meta.pop("generator", None)
        if any(isinstance(value, torch.Tensor) for value in args):
            return func(*args, **kwargs)
        with self._paused():
            elements = func(*args, **on_meta).numel()
        return func(*args, **(kwargs if elements <= TINY_ELEMENTS else on_meta))

    def _cast(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if name in LOWER_PRECISION:
            dtype = torch.get_autocast_dtype("cuda")
            args = self._cast_from_host(args, dtype)
        elif name in FLOAT32:
            dtype = torch.float32
        elif name in FLOAT32_OUTPUT:
            reads_floats = args and args[0].is_meta and args[0].is_floating_point()
            if reads_floats and kwargs.get("dtype") is None:
                kwargs = {**kwargs, "dtype": torch.float32}
            return args, kwargs
        elif name in PROMOTED:
            dtype = _widest((args, kwargs))
        else:
            return args, kwargs
        if dtype is None:
            return args, kwargs
        return (
            tuple(self._cast_value(value, dtype) for value in args),
            {key: self._cast_value(value, dtype) for key, value in kwargs.items()},
        )

    def _cast_from_host(self, args: tuple[Any, ...], dtype: torch.dtype) -> tuple[Any, ...]:
        """Return the operands of a product with small tensors of the host as the device's are.

        A small tensor that the step makes has values, for which it is on the host; a program that
        trains makes it on the device.
        """
        if not any(isinstance(each, torch.Tensor) and each.is_meta for each in args):
            return args
        return tuple(
            each.to(dtype)
            if isinstance(each, torch.Tensor) and not each.is_meta and each.dtype in CAST_FROM
            else each
            for each in args
        )

    def _cast_value(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, torch.Tensor):
            if (
                not value.is_floating_point()
                or value.dtype in (dtype, torch.float64)
                or not value.is_meta
            ):
                return value
            if dtype != torch.float32 and value.is_leaf and value.requires_grad:
                return self._copy_of_weight(value, dtype)
            return value.to(dtype)
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast_value(each, dtype) for each in value)
        return value

    def _copy_of_weight(self, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not torch.is_autocast_cache_enabled() or weight.dtype != torch.float32:
            return weight.to(dtype)
        cached = self._copies.get(id(weight))
        if cached is None or cached[1].dtype != dtype:
            cached = (weight, weight.to(dtype))
            self._copies[id(weight)] = cached
            self._keep(cached[1])
        return cached[1]


@contextmanager
def gpu_machine(target: Target | None) -> Iterator[None]:
    """Answer `torch.cuda.*`, `torch.compile` and autocast as a machine with one GPU would."""
    if target is None:
        yield
        return
    answers: list[Any] = [patch.object(torch.cuda, k, v) for k, v in _cuda_answers().items()]
    answers += [
        patch.object(module, "amp_definitely_not_available", lambda: False)
        for module in (torch.cuda.amp.common, torch.amp.grad_scaler)
        if hasattr(module, "amp_definitely_not_available")
    ]
    answers += [
        checkpoint_answers(),
        patch.object(torch.backends.cudnn, "is_acceptable", lambda tensor: False),
        patch.object(torch, "compile", _compile(target)),
        patch.object(torch.nn.Module, "compile", _compile_module(target)),
        patch.object(torch.autocast, "__enter__", _enter_autocast(target)),
        patch.object(torch.autocast, "__exit__", _exit_autocast(target)),
    ]
    for answer in answers:
        answer.start()
    try:
        yield
    finally:
        for answer in reversed(answers):
            answer.stop()


def attention_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> str:
    """Return "flash", "efficient" or "math": what `scaled_dot_product_attention` runs on a GPU.

    Source: torch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (default priority order,
    compute capability 8.0 or later).
    """
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


def _attention(
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
    return gpu_kernels.rms_norm(input, weight, len(normalized_shape))


def _rnn(mode: int) -> Callable[..., Any]:
    def run(func: Callable[..., Any], *args: Any) -> Any:
        if not args[0].is_meta or isinstance(args[3], (list, tuple)):
            # Packed sequences have (input, batch_sizes, state, weights, …): their steps are data.
            return func(*args)
        input, state, weights, biases, layers, dropout, train, both_ways, batch_first = args
        hidden, cell = state if mode == gpu_kernels.LSTM else (state, None)
        projected = weights[4].shape[0] if biases and len(weights) % (5 * layers) == 0 else 0
        out = torch.ops.aten._cudnn_rnn(
            input, list(weights), 4 if biases else 2, input.new_empty(0), hidden, cell, mode,
            weights[1].shape[1] if not projected else weights[0].shape[0] // 4, projected, layers,
            batch_first, dropout, train, both_ways, [], None,
        )  # fmt: skip
        return out[:3] if mode == gpu_kernels.LSTM else out[:2]

    return run


def _backward(
    loss: torch.Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    run = without_overrides(cast(FunctionType, torch.autograd.backward))
    run(loss, gradient, retain_graph, create_graph, inputs=inputs)


def _to(func: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    args = tuple(_on_meta(each) if isinstance(each, (str, torch.device)) else each for each in args)
    if "device" in kwargs:
        kwargs["device"] = _on_meta(kwargs["device"])
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


def _without_data(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty_like(tensor, device=META, requires_grad=tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, tensor.requires_grad)
    return empty


def _from_data(func: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.Tensor:
    if kwargs.get("device") is not None:
        kwargs["device"] = _on_meta(kwargs["device"])
    return func(*args, **kwargs)


_SPECIAL: dict[str, Callable[..., Any]] = {
    "new": new_tensor,
    "sparse_coo_tensor": new_sparse,
    "scaled_dot_product_attention": _attention,
    "dropout": _dropout,
    "rms_norm": _rms_norm,
    "lstm": _rnn(gpu_kernels.LSTM),
    "gru": _rnn(gpu_kernels.GRU),
    "rnn_tanh": _rnn(gpu_kernels.RNN_TANH),
    "rnn_relu": _rnn(gpu_kernels.RNN_RELU),
    "to": _to,
    "copy_": _copy_into,
    "cuda": _cuda,
    "cpu": _cpu,
    "pin_memory": _cpu,
    **dict.fromkeys(FROM_DATA, _from_data),
}


def _device(tensor: torch.Tensor) -> torch.device:
    return GPU if tensor.is_meta else tensor.device


_GETTERS: dict[Any, Callable[[torch.Tensor], Any]] = {
    torch.Tensor.device.__get__: _device,  # pyright: ignore[reportAttributeAccessIssue]
    torch.Tensor.is_cuda.__get__: lambda tensor: tensor.is_meta,  # pyright: ignore[reportAttributeAccessIssue]
    torch.Tensor.is_meta.__get__: lambda tensor: False,  # pyright: ignore[reportAttributeAccessIssue]
}


def _on_meta(device: Any) -> Any:
    if device is None or isinstance(device, int):
        return META if isinstance(device, int) else None
    found = torch.device(device) if isinstance(device, str) else device
    return META if found.type == "cuda" else found


def _widest(values: Any) -> torch.dtype | None:
    found: list[torch.dtype] = []
    stack = [values]
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():
                found.append(value.dtype)
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
        elif isinstance(value, dict):
            stack.extend(value.values())
    return torch.float32 if torch.float32 in found else (found[0] if found else None)


def _cuda_answers() -> dict[str, Any]:
    properties = SimpleNamespace(
        name="GPU", major=9, minor=0, total_memory=80 * 10**9, multi_processor_count=132,
        warp_size=32, max_threads_per_multi_processor=2048,
    )  # fmt: skip
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: (properties.major, properties.minor),
        "get_device_name": lambda *_: properties.name,
        "get_device_properties": lambda *_: properties,
        "is_bf16_supported": lambda *_, **__: True,
        "mem_get_info": lambda *_: (properties.total_memory, properties.total_memory),
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_, **__: None,
        **{name: _returning(0) for name in ("_exchange_device", "_maybe_exchange_device")},
        **{
            name: _returning(None)
            for name in words(
                """synchronize empty_cache manual_seed manual_seed_all set_device _lazy_init
                reset_peak_memory_stats reset_accumulated_memory_stats ipc_collect"""
            )
        },
    }


def _returning(value: int | None) -> Callable[..., int | None]:
    """Return a new function each time: torch._dynamo keeps a rule by function, and one only."""
    return lambda *_, **__: value


def _compile(target: Target) -> Callable[..., Any]:
    def compile(model: Any = None, **_: Any) -> Any:
        target.compiles = True
        return model if model is not None else lambda function: function

    return compile


def _compile_module(target: Target) -> Callable[..., None]:
    def compile(module: torch.nn.Module, *_: Any, **__: Any) -> None:
        target.compiles = True

    return compile


def _enter_autocast(target: Target) -> Callable[..., Any]:
    enter = torch.autocast.__enter__

    def run(autocast: torch.autocast) -> Any:
        # Under a mode, autocast would look for a tracer of torch.fx, which is slow to import.
        with no_torch_function():
            entered = enter(autocast)
        if autocast.device == "cuda" and torch.is_autocast_enabled("cuda"):
            target.autocast_dtype = torch.get_autocast_dtype("cuda")
        return entered

    return run


def _exit_autocast(target: Target) -> Callable[..., Any]:
    exit = torch.autocast.__exit__

    def run(autocast: torch.autocast, *error: Any) -> Any:
        with no_torch_function():
            result = exit(autocast, *error)
            if torch.autocast_decrement_nesting() <= 0:
                target.forget_copies()
            torch.autocast_increment_nesting()
        return result

    return run
