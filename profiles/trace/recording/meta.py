"""Runs operations on tensors without data: what each gives, worked out once for its shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .operation import Known, Operation, shape_of

_ODD = object()
"""Remembered of operations whose outputs share or exceed their storage: run them every time."""


def on_device(
    operation: Operation,
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
    if on_host and operation.name != "copy":
        args, kwargs = _moved(args), _moved(kwargs)
    return args, kwargs, True


def run_on_meta(
    operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], known: Known | None
) -> Any:
    """Run an operation; from its remembered output shapes where it only makes new tensors.

    Args:
        operation: the operation.
        args: its arguments.
        kwargs: its named arguments.
        known: what is known of it for the shapes of its arguments; None where nothing can be.
    """
    if operation.writes_lists and only_writes(operation, args, kwargs):
        return None
    run = operation.rule or operation.func
    if not operation.makes_new:
        return _run_in_place(operation, args, kwargs, known)
    if known is None:
        return operation.func(*args, **kwargs)
    if known.result is None:
        out = run(*args, **kwargs)
        is_compact = _is_compact(out)
        known.result = _describe(out) if is_compact else _ODD
        if is_compact and isinstance(out, torch.Tensor) and out.is_meta:
            known.new_bytes = out.untyped_storage().nbytes()
            known.sole = shape_of(out) if known.new_bytes else None
        return out
    return operation.func(*args, **kwargs) if known.result is _ODD else _rebuild(known.result)


def _run_in_place(
    operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], known: Known | None
) -> Any:
    """Run an operation that writes; not where it is known to leave its first operand as it is.

    torch works the shapes of `sigmoid_` out in Python, which was half the time of an LSTM cell.
    """
    if known is None or not operation.writes_first or not args[0].is_meta:
        return (operation.rule or operation.func)(*args, **kwargs)
    if known.unchanged:
        return args[0]
    before = shape_of(args[0])
    out = (operation.rule or operation.func)(*args, **kwargs)
    known.unchanged = out is args[0] and shape_of(out) == before
    return out


def only_writes(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an operation would do nothing here but write values, of which none are.

    torch works out the shapes of each tensor in the lists of a foreach optimizer in Python,
    which was half the time of a trace. Lists that do not match are left to torch to refuse.
    """
    if not operation.writes_lists:
        return False
    lists = [each for each in args if _is_tensor_list(each)]
    loose = [each for each in args if not any(each is one for one in lists)]
    if not lists or tensors_in((loose, kwargs)):
        return False
    first = [(tensor.shape, tensor.dtype, True) for tensor in lists[0]]
    return all(
        [(tensor.shape, tensor.dtype, tensor.is_meta) for tensor in each] == first for each in lists
    )


def _is_tensor_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], torch.Tensor)


def _is_compact(out: Any) -> bool:
    """Return whether every output fills a storage of its own, as a newly made tensor would."""
    tensors = tensors_in((out,))
    if any(tensor.layout is not torch.strided for tensor in tensors):
        return False
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
