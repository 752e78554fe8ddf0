"""What an operation is to the trace: its name, its arguments, and of tensors their shapes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch


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


NO_KERNEL = words(
    """empty empty_strided empty_like new_empty new_empty_strided empty_permuted detach alias
    lift lift_fresh _local_scalar_dense is_same_size _version is_pinned resize_ set_ _reshape_alias
    record_stream sym_size sym_stride sym_numel dense_dim sparse_dim"""
)
"""Operations that are no view and yet launch nothing."""


@cache
def op_name(func: Any) -> str:
    """Return the name of an operation without namespace, overload or in-place underscore."""
    name = func._schema.name.split("::")[-1]
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return name


def tensors_in(values: Any) -> Iterator[TensorShape]:
    """Return the tensors among arguments, in order."""
    for value in values:
        if isinstance(value, TensorShape):
            yield value
        elif isinstance(value, tuple):
            yield from tensors_in(value)
