"""What autocast casts on a GPU, by CUDA's own lists, and the copies of weights that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..kernels.operations import words

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
    cross_entropy_loss ctc_loss dist pdist cdist renorm logsumexp
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d
    upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
    _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa"""
)
PROMOTED = words(
    """addcdiv addcmul atan2 cross dot grid_sample grid_sampler index_put scatter_add bilinear
    tensordot vdot cat stack"""
)
CAST_FROM = (torch.float16, torch.bfloat16, torch.float32)
"""What autocast casts: other dtypes stay."""


class Autocast:
    """Casts the operands of calls in an autocast region.

    Args:
        keep: Called with every 16-bit copy of a weight that autocast keeps until it ends.
    """

    def __init__(self, keep: Callable[[torch.Tensor], None]) -> None:
        self._keep = keep
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def forget_copies(self) -> None:
        """Drop the 16-bit weight copies, as autocast does when its outermost region ends."""
        self._copies.clear()

    def cast(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the torch function of this name as autocast passes them on."""
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
