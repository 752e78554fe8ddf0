"""The names and classes of tensor types, such as `torch.cuda.FloatTensor`, of before `device=`.

A meta tensor calls itself "torch.meta.FloatTensor", and a torch without CUDA has no constructors of
CUDA's: older code compares the names, casts by them and makes tensors with the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

META = torch.device("meta")
ON_GPU = "torch.cuda."
DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


def tensor_type(
    func: Callable[..., Any], tensor: torch.Tensor, dtype: Any = None, *rest: Any, **named: Any
) -> Any:
    """Do what `Tensor.type` does: say the type's name, or cast and move to a type."""
    if dtype is None:
        return func(tensor).replace("torch.meta.", ON_GPU)
    wanted = _of_name(dtype if isinstance(dtype, str) else _name_of(dtype))
    if wanted is None or (tensor.is_meta and isinstance(dtype, torch.dtype)):
        return func(tensor, dtype, *rest, **named)
    on_gpu, cast = wanted
    # The data of a device tensor is unknown on the host as well.
    return tensor.to(META if on_gpu or tensor.is_meta else tensor.device, cast)


def cuda_classes() -> dict[str, Any]:
    """Return what stands for `torch.cuda.FloatTensor` and its kind, by name."""
    return {name: _CudaTensor(name, (), {"dtype": dtype}) for name, dtype in DTYPES.items()}


class _CudaTensor(type):
    """A class of tensors on the GPU: calling it makes one, and `isinstance` asks for one."""

    __module__ = "torch.cuda"
    dtype: torch.dtype

    def __call__(cls, *made_of: Any, **_: Any) -> torch.Tensor:
        if len(made_of) == 1 and not isinstance(made_of[0], int | torch.Size):
            return torch.as_tensor(made_of[0], dtype=cls.dtype).to(META)
        return torch.empty(*(made_of or (0,)), dtype=cls.dtype, device=META)

    def __instancecheck__(cls, instance: Any) -> bool:
        is_tensor = isinstance(instance, torch.Tensor)
        return is_tensor and instance.device.type == "cuda" and instance.dtype == cls.dtype


def _name_of(dtype: Any) -> str:
    if isinstance(dtype, _CudaTensor):
        return f"{ON_GPU}{dtype.__name__}"
    return f"{getattr(dtype, '__module__', '')}.{getattr(dtype, '__name__', '')}"


def _of_name(name: str) -> tuple[bool, torch.dtype] | None:
    """Return (whether on the GPU, dtype) of a type's name; None of what is none."""
    place, _, kind = name.rpartition(".")
    dtype = DTYPES.get(kind)
    return None if dtype is None else (place == ON_GPU[:-1], dtype)
