"""What the recorder asks of each operation, worked out once: a loop over time steps has 10^5 calls.

torch's operations are slow as keys of a dict (their hash is a Python function), so that all that is
known of one stands in one object, and so does what each of its calls gave, by the shapes it took.
"""

from __future__ import annotations

from typing import Any

import torch

from ..gpu.operators import SHAPE_RULES
from ..kernels.operations import NO_KERNEL, Call, TensorShape, op_name
from .routing import may_route
from .stated_sizes import may_need_values

VIEWS = ("detach", "_unsafe_view", "lift_fresh", "alias", "is_pinned", "set")
"""Names of operations that only give a view, beside those that torch says so of."""
_new = tuple.__new__


class Known:
    """What a call of an operation on operands of certain shapes gives, as far as it was seen."""

    __slots__ = ("call", "calls", "new_bytes", "result", "sole", "unchanged")

    def __init__(self) -> None:
        self.result: Any = None
        """Of operations that only make new tensors: these, as `meta` describes them."""
        self.unchanged = False
        """Of operations in place: whether the first operand comes back as it was."""
        self.sole: TensorShape | None = None
        """The output, where there is one alone, on the device and with a storage of its own."""
        self.new_bytes = 0
        """Of that storage."""
        self.call: Call | None = None
        """The call that makes it; None until it did."""
        self.calls: dict[tuple[TensorShape, ...], Call] = {}
        """By what was new of the outputs: equal calls are one object."""


class Operation:
    """One operation of torch, or of ours."""

    __slots__ = (
        "defaults",
        "func",
        "has_kernel",
        "is_copy",
        "is_recorded",
        "is_view",
        "known",
        "makes_new",
        "may_need_values",
        "may_route",
        "name",
        "names",
        "rule",
        "writes",
        "writes_first",
        "writes_lists",
    )

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.func = func
        self.name = op_name(func)
        self.is_recorded = func.namespace in ("aten", "gpuplan")
        self.is_view: bool = func.is_view or self.name in VIEWS
        self.writes: bool = schema.is_mutable
        self.writes_first = (
            schema.name.endswith("_") and len(schema.returns) == 1 and schema.is_mutable
        )
        """Whether it writes into its first operand, a tensor, and returns that alone."""
        self.writes_lists = (
            self.name.startswith("_foreach_") and schema.is_mutable and not schema.returns
        )
        """Whether it writes into lists of tensors and returns nothing."""
        self.makes_new = not schema.is_mutable and all(
            value.alias_info is None for value in schema.returns
        )
        """Whether all outputs are new: nothing written in place, nothing passed through."""
        self.has_kernel = self.name not in NO_KERNEL
        self.is_copy = self.name == "_to_copy"
        self.may_need_values = may_need_values(func)
        self.may_route = may_route(func)
        self.rule = SHAPE_RULES.get(func)
        self.names = tuple(argument.name for argument in schema.arguments)
        self.defaults = tuple(
            argument.default_value if argument.has_default_value() else None
            for argument in schema.arguments
        )
        self.known: dict[tuple[Any, ...], Known] = {}

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments in the order of the schema, defaults filled in."""
        given = len(args)
        if not kwargs:
            return args + self.defaults[given:] if given < len(self.defaults) else args
        rest = zip(self.names[given:], self.defaults[given:], strict=True)
        return (*args, *[kwargs.get(name, default) for name, default in rest])

    def known_of(self, shapes: tuple[Any, ...]) -> Known | None:
        """Return what is known of a call on these shapes; None where they cannot be looked up."""
        try:
            known = self.known.get(shapes)
        except TypeError:
            return None
        if known is None:
            known = self.known[shapes] = Known()
        return known

    def call(
        self, shapes: tuple[Any, ...], known: Known | None, new: tuple[TensorShape, ...]
    ) -> Call:
        """Return the call on these shapes that made these tensors: the same object for equal ones.

        Args:
            shapes: its arguments.
            known: of these.
            new: the tensors with a storage that was not there before.
        """
        if known is None:
            return Call(self.func, shapes, new)
        found = known.calls.get(new)
        if found is None:
            found = known.calls[new] = Call(self.func, shapes, new)
            if known.sole is not None and new == (known.sole,):
                known.call = found
        return found


_OPERATIONS: dict[int, Operation] = {}


def operation_of(func: Any) -> Operation:
    """Return what is known of an operation."""
    found = _OPERATIONS.get(id(func))
    if found is None:
        # It holds `func`, whose id nothing else can have while it lives.
        found = _OPERATIONS[id(func)] = Operation(func)
    return found


def shape_of(tensor: torch.Tensor) -> TensorShape:
    """Return the shape, the strides and the dtype of a tensor."""
    return _new(TensorShape, (tuple(tensor.shape), tensor.stride(), tensor.dtype))


def shapes_of(values: Any) -> tuple[Any, ...]:
    """Return values with their tensors as shapes, those in sequences too."""
    return tuple(
        [
            _new(TensorShape, (tuple(value.shape), value.stride(), value.dtype))
            if isinstance(value, torch.Tensor)
            else shapes_of(value)
            if isinstance(value, (list, tuple))
            else value
            for value in values
        ]
    )
