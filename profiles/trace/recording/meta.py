"""Runs operations on tensors without data: what each gives, worked out once for its shapes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from ..gpu.operators import SHAPE_RULES
from ..kernels.operations import TensorShape, op_name

_REMEMBERED: dict[tuple[Any, tuple[Any, ...]], Any] = {}
_UNCHANGED: set[tuple[Any, tuple[Any, ...]]] = set()
"""Operations in place, with the shapes of their operands, that gave back the first as it was."""
_ODD = object()
"""Remembered of operations whose outputs share or exceed their storage: run them every time."""


def on_device(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    operands: Sequence[torch.Tensor],
) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """Return the arguments with host tensors moved to the device, and whether any is there."""
    device = on_host = False
    for tensor in operands:
        if tensor.is_meta:
            device = True
        else:
            on_host = on_host or tensor.dim() > 0
    if not device:
        wanted = kwargs.get("device")
        return args, kwargs, wanted is not None and wanted.type == "meta"
    if on_host and op_name(func) != "copy":
        args, kwargs = _moved(args), _moved(kwargs)
    return args, kwargs, True


def run_on_meta(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: tuple[Any, ...]
) -> Any:
    """Run an operation; from its remembered output shapes where it only makes new tensors.

    Args:
        func: the operation.
        args: its arguments.
        kwargs: its named arguments.
        shapes: all its arguments in the order of the schema, tensors as shapes.
    """
    if only_writes(func, args, kwargs):
        return None
    if not _makes_new_tensors(func):
        return _run_in_place(func, args, kwargs, shapes)
    try:
        remembered = _REMEMBERED.get((func, shapes))
    except TypeError:
        return func(*args, **kwargs)
    if remembered is None:
        rule = SHAPE_RULES.get(func)
        out = rule(*args, **kwargs) if rule else func(*args, **kwargs)
        _REMEMBERED[func, shapes] = _describe(out) if _is_compact(out) else _ODD
        return out
    return func(*args, **kwargs) if remembered is _ODD else _rebuild(remembered)


def _run_in_place(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: tuple[Any, ...]
) -> Any:
    """Run an operation that writes; not where it is known to leave its first operand as it is.

    torch works the shapes of `sigmoid_` out in Python, which was half the time of an LSTM cell.
    """
    known = _writes_first(func) and args[0].is_meta
    try:
        if known and (func, shapes) in _UNCHANGED:
            return args[0]
    except TypeError:
        known = False
    rule = SHAPE_RULES.get(func)
    out = rule(*args, **kwargs) if rule else func(*args, **kwargs)
    if known and out is args[0] and shape_of(out) == shapes[0]:
        _UNCHANGED.add((func, shapes))
    return out


def only_writes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an operation would do nothing here but write values, of which none are.

    torch works out the shapes of each tensor in the lists of a foreach optimizer in Python,
    which was half the time of a trace. Lists that do not match are left to torch to refuse.
    """
    if not _writes_lists(func):
        return False
    lists = [each for each in args if _is_tensor_list(each)]
    loose = [each for each in args if not any(each is one for one in lists)]
    if not lists or tensors_in((loose, kwargs)):
        return False
    first = [(tensor.shape, tensor.dtype, True) for tensor in lists[0]]
    return all(
        [(tensor.shape, tensor.dtype, tensor.is_meta) for tensor in each] == first for each in lists
    )


@cache
def is_view(func: Any) -> bool:
    """Return whether an operation only gives a new view of its input."""
    if func.is_view:
        return True
    return op_name(func) in ("detach", "_unsafe_view", "lift_fresh", "alias", "is_pinned", "set")


@cache
def writes(func: Any) -> bool:
    """Return whether it writes into one of its operands."""
    return func._schema.is_mutable


@cache
def _makes_new_tensors(func: Any) -> bool:
    """Return whether all outputs are new: nothing written in place, nothing passed through."""
    schema = func._schema
    return not schema.is_mutable and all(value.alias_info is None for value in schema.returns)


@cache
def _writes_first(func: Any) -> bool:
    """Return whether it writes into its first operand, a tensor, and returns that alone."""
    returns = func._schema.returns
    return func._schema.name.endswith("_") and len(returns) == 1 and writes(func)


@cache
def _writes_lists(func: Any) -> bool:
    """Return whether it writes into lists of tensors and returns nothing."""
    return op_name(func).startswith("_foreach_") and writes(func) and not func._schema.returns


def _is_tensor_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], torch.Tensor)


def shape_of(value: Any) -> Any:
    """Return a value with its tensors as shapes, those in sequences too."""
    if isinstance(value, torch.Tensor):
        return TensorShape(tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return tuple(map(shape_of, value))
    return value


def _is_compact(out: Any) -> bool:
    """Return whether every output fills a storage of its own, as a newly made tensor would."""
    tensors = tensors_in((out,))
    for tensor in tensors:
        last = sum(s * (n - 1) for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        extent = (last + 1) * tensor.element_size() if tensor.numel() else 0
        if tensor.storage_offset() or tensor.untyped_storage().nbytes() != extent:
            return False
    return len({tensor.untyped_storage()._cdata for tensor in tensors}) == len(tensors)


def _describe(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        return (tuple(out.shape), out.stride(), out.dtype, out.is_meta)
    if isinstance(out, (list, tuple)):
        return [tuple, *map(_describe, out)] if isinstance(out, tuple) else [*map(_describe, out)]
    return out


def _rebuild(description: Any) -> Any:
    if isinstance(description, tuple):
        shape, stride, dtype, on_meta = description
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta" if on_meta else "cpu")
    if isinstance(description, list):
        if description and description[0] is tuple:
            return tuple(map(_rebuild, description[1:]))
        return [*map(_rebuild, description)]
    return description


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Return the tensors among values, in order; a list, since every operation asks several times.

    A generator that calls itself takes three times as long, and a loop over time steps has 10^5
    operations.
    """
    found: list[torch.Tensor] = []
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple, dict)) and value:
            found += tensors_in(value)
    return found


def _moved(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value if value.is_meta or value.dim() == 0 else value.to("meta")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_moved, value))
    if isinstance(value, dict):
        return {key: _moved(each) for key, each in value.items()}
    return value
