"""Operations whose results depend on values: which they are, and their shapes at a stated size.

Shapes as documented for torch.nonzero, masked_select, unique, unique_consecutive, bincount and
repeat_interleave: https://docs.pytorch.org/docs/stable/torch.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from ..kernels.operations import op_name, words

SizeOf = Callable[[str, int], int]
"""The operation and how many values it looks at → how many it finds; raises where nobody said."""

_DATA_SHAPED = words(
    """nonzero masked_select _unique _unique2 unique_dim unique_consecutive bincount
    nonzero_static_dynamic"""
)
_ANSWERS = words("allclose equal")
MASKED_INDEX = "indexing with a mask"


def may_need_values(func: Any) -> bool:
    """Return whether the result of an operation may depend on data."""
    return _kind(func) is not None


def values_needed(func: Any, arguments: Sequence[Any]) -> str | None:
    """Return how an operation whose result depends on data is called; None for all others.

    Args:
        func: The operation.
        arguments: All of its arguments in the order of its schema, or their shapes.
    """
    kind = _kind(func)
    if kind == MASKED_INDEX:
        return kind if any(map(is_mask, arguments[1])) else None
    if kind == _REPEATS:
        return kind if len(arguments) == 2 and arguments[1] is None else None
    return kind


_REPEATS = "torch.repeat_interleave without output_size"


@cache
def _kind(func: Any) -> str | None:
    name = op_name(func)
    if name in _DATA_SHAPED or name in _ANSWERS:
        return f"torch.{name.lstrip('_')}"
    return {"index": MASKED_INDEX, "repeat_interleave": _REPEATS}.get(name)


def gives_answer(func: Any) -> bool:
    """Return whether it returns True or False, and no tensor."""
    return op_name(func) in _ANSWERS


def is_mask(index: Any) -> bool:
    """Return whether an index (or its shape) selects where it is true."""
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def at_stated_size(
    func: Any, operation: str, arguments: tuple[Any, ...], size_of: SizeOf
) -> Any | None:
    """Return what an operation returns at the size that was stated; None where no rule is known.

    Args:
        func: The operation.
        operation: How it is called, for messages.
        arguments: All of its arguments, in the order of its schema.
        size_of: Gives the size, or raises.
    """
    rule = _RULES.get(op_name(func))
    return None if rule is None else rule(arguments, lambda count: size_of(operation, count))


def _nonzero(arguments: tuple[Any, ...], size: Callable[[int], int]) -> torch.Tensor:
    (given,) = arguments[:1]
    rows = size(given.numel())
    # CUDA writes one column after the other: aten/src/ATen/native/cuda/Nonzero.cu.
    return given.new_empty_strided((rows, given.dim()), (1, rows), dtype=torch.int64)


def _masked_select(arguments: tuple[Any, ...], size: Callable[[int], int]) -> torch.Tensor:
    given, mask = arguments[:2]
    count = torch.broadcast_shapes(given.shape, mask.shape).numel()
    return given.new_empty(size(count))


def _unique(arguments: tuple[Any, ...], size: Callable[[int], int]) -> tuple[torch.Tensor, ...]:
    given, _sorted, inverse, counts = arguments[:4]
    return _unique_values(given, None, size, inverse=inverse, counts=counts)


def _unique_dim(arguments: tuple[Any, ...], size: Callable[[int], int]) -> tuple[torch.Tensor, ...]:
    given, dim, _sorted, inverse, counts = arguments[:5]
    return _unique_values(given, dim, size, inverse=inverse, counts=counts)


def _unique_consecutive(
    arguments: tuple[Any, ...], size: Callable[[int], int]
) -> tuple[torch.Tensor, ...]:
    given, inverse, counts, dim = arguments[:4]
    return _unique_values(given, dim, size, inverse=inverse, counts=counts)


def _unique_values(
    given: torch.Tensor,
    dim: int | None,
    size: Callable[[int], int],
    *,
    inverse: bool,
    counts: bool,
) -> tuple[torch.Tensor, ...]:
    looked_at = given.numel() if dim is None else given.shape[dim]
    found = size(looked_at)
    shape = list(given.shape)
    if dim is None:
        shape = [found]
    else:
        shape[dim] = found
    of_each = given.shape if dim is None else (looked_at,)
    return (
        given.new_empty(shape),
        given.new_empty(of_each if inverse else 0, dtype=torch.int64),
        given.new_empty(found if counts else 0, dtype=torch.int64),
    )


def _bincount(arguments: tuple[Any, ...], size: Callable[[int], int]) -> torch.Tensor:
    given, weights, least = arguments[:3]
    found = max(size(given.numel()), least or 0)
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if weights.dtype == torch.float32 else torch.float64
    return given.new_empty(found, dtype=dtype)


def _repeat_interleave(arguments: tuple[Any, ...], size: Callable[[int], int]) -> torch.Tensor:
    (repeats,) = arguments[:1]
    return repeats.new_empty(size(repeats.numel()))


_RULES: dict[str, Callable[[tuple[Any, ...], Callable[[int], int]], Any]] = {
    "nonzero": _nonzero,
    "masked_select": _masked_select,
    "_unique2": _unique,
    "unique_dim": _unique_dim,
    "unique_consecutive": _unique_consecutive,
    "bincount": _bincount,
    "repeat_interleave": _repeat_interleave,
}
