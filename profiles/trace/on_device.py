"""Models and batches as tensors of the device, which have no data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..profile import BatchTensor
from .gpu.functions import GPU
from .torch_private import no_torch_function

SIXTEEN_BIT = torch.bfloat16


def move_to_device(model: nn.Module) -> None:
    """Move parameters and buffers to the device; tied ones stay tied."""
    moved: dict[int, Any] = {}
    with no_torch_function():
        for module in model.modules():
            for table in (module._parameters, module._buffers):
                for name, tensor in table.items():
                    if tensor is None or tensor.is_meta or nn.parameter.is_lazy(tensor):
                        continue
                    if id(tensor) not in moved:
                        moved[id(tensor)] = (tensor, _moved(tensor))
                    table[name] = moved[id(tensor)][1]


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    data = tensor.detach().to("meta")
    if not isinstance(tensor, nn.Parameter):
        return data
    parameter = nn.Parameter(data, tensor.requires_grad)
    for name, value in vars(tensor).items():
        setattr(parameter, name, value)
    return parameter


def on_device(batch: Any) -> Any:
    """Return a batch with its tensors on the device."""
    return map_tensors(batch, lambda tensor: tensor.to(GPU))


def to_sixteen_bit(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in 16 bits where it is one of floats."""
    return tensor.to(SIXTEEN_BIT) if tensor.is_floating_point() else tensor


def map_tensors(value: Any, function: Any) -> Any:
    """Return a batch with each of its tensors as a function gives it, in containers of its own."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(each, function) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(each, function) for each in value)
    if isinstance(value, dict):
        mapped = {key: map_tensors(each, function) for key, each in value.items()}
        return mapped if type(value) is dict else _filled(value, mapped)
    if hasattr(value, "to") and callable(value.to) and not isinstance(value, nn.Module):
        return value.to(GPU)
    return value


def _filled(like: Any, values: dict[Any, Any]) -> Any:
    """Return a mapping of the class of `like` (a BatchEncoding, …), or a dict if it cannot be."""
    try:
        return type(like)(values)
    except TypeError:
        return values


def batch_tensors(batch: Any, size: int) -> tuple[BatchTensor, ...]:
    """Return the tensors of a batch of so many samples that have a row for each."""
    return tuple(
        BatchTensor(
            sample_shape=tuple(tensor.shape[1:]), dtype=str(tensor.dtype).removeprefix("torch.")
        )
        for tensor in tensors_of(batch)
        if tensor.dim() and tensor.shape[0] == size
    )


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Return the tensors of a batch, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_of(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_of(each)
