"""Watches one training step: every operation as a `Call`, every storage from birth to death.

Ticks count the operations that are no view. Operations are grouped into *instances*: what one
execution of a block (or the root between two blocks) ran in one phase. In the backward pass an
operation belongs to the instance whose forward pass made its autograd node.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..profile import CATEGORIES, Phase
from .gpu_kernels import SHAPE_RULES
from .kernels import NO_KERNEL, Call, TensorShape, all_arguments, op_name
from .sparse import concerns_sparse, run_sparse
from .stated_sizes import (
    MASKED_INDEX,
    SizeOf,
    at_stated_size,
    gives_answer,
    is_mask,
    may_need_values,
    values_needed,
)
from .torch_private import (
    next_node_number,
    no_torch_function,
    running_node_name,
    running_node_number,
)

PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, TEMPORARY, INPUTS, BUFFERS = range(len(CATEGORIES))
ROOT = -1
NEVER = 1 << 60
EMBEDDING_BACKWARD = "EmbeddingBackward0"
"""Autograd node that leaves the padding's rows out of a sparse gradient."""


@dataclass
class BlockExecution:
    """One execution of a block, or of the root between blocks, in one phase."""

    phase: Phase
    run: int
    """Number of the block execution in the step; ROOT for the root."""
    block: int | None
    """Index of the block among all repeated blocks."""
    start_tick: int
    calls: list[tuple[Call, str, bool]] = field(default_factory=list)
    """(call, module path, multiplies a weight)."""
    ticks: list[int] = field(default_factory=list)
    """Tick of each call."""


@dataclass
class Rows:
    """The storages, one entry each, in order of birth."""

    birth: list[int] = field(default_factory=list)
    death: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    category: list[int] = field(default_factory=list)
    instance: list[int] = field(default_factory=list)
    producer: list[str] = field(default_factory=list)
    entered: list[int] = field(default_factory=list)
    """First block execution that takes it as an input; ROOT for none."""
    outside: list[int] = field(default_factory=list)
    """Last tick at which the backward pass of another block execution touches it; -1 for none."""
    inside: list[int] = field(default_factory=list)
    """The same of the block execution that made it."""
    kept: list[bool] = field(default_factory=list)
    """Whether autocast keeps it until its region ends."""


@dataclass(frozen=True)
class _Place:
    run: int
    block: int | None
    module: str


class Recorder(TorchDispatchMode):
    """Records one step.

    Args:
        device: Type of the device whose storages count: "meta", or "cpu" for a real run.
        data_dependent: Called with the name of an operation that needs data; must raise.
        size_of: Called where a shape depends on data; default: as `data_dependent`.
    """

    def __init__(
        self,
        device: str,
        data_dependent: Callable[[str], Any],
        size_of: SizeOf | None = None,
    ) -> None:
        super().__init__()
        self.device = device
        self.phase: Phase = "forward"
        self.tick = 0
        self.instances: list[BlockExecution] = []
        self.rows = Rows()
        self.boundary_bytes: dict[int, int] = {}
        """Floating-point bytes that enter each repeated block at its first execution."""
        self._data_dependent = data_dependent
        self._size_of = size_of or (lambda operation, _available: data_dependent(operation))
        self._masked_index = False
        self._pauses = 0
        self._live: dict[int, tuple[int, Any]] = {}
        self._weights: set[int] = set()
        self._modules: list[_Place] = [_Place(ROOT, None, "")]
        self._runs = 0
        self._nodes: list[int] = []
        self._node_places: list[tuple[_Place, bool]] = []
        self._node_ticks: list[int] = []
        self._written: dict[int, int] = {}
        """Last tick of the forward pass that wrote a row in place."""
        self._running_node_tick = -1
        self.rerun_end: dict[int, int] = {}
        """Per block execution: the tick at which a recompute of it has all that was saved."""
        self.release: dict[int, int] = {}
        """Per block execution: the tick at which the last saved tensor is used up."""

    # --- called by the engine ------------------------------------------------------------------

    def hold(self, tensor: Any, category: int) -> None:
        """Note a storage that exists before the step, or change the category of a known one."""
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != self.device:
            return
        storage = tensor.untyped_storage()
        known = self._live.get(storage._cdata)
        if known is not None:
            self.rows.category[known[0]] = category
        elif storage.nbytes():
            self._birth(storage, -1, "")
            self.rows.category[-1] = category
        if category == PARAMETERS:
            self._weights.add(storage._cdata)

    def keep(self, tensor: torch.Tensor) -> None:
        """Note that autocast keeps this storage until its region ends."""
        with no_torch_function():
            known = self._live.get(tensor.untyped_storage()._cdata)
        if known is not None:
            self.rows.kept[known[0]] = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run operations without recording them."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    @contextmanager
    def watching(self, model: torch.nn.Module, blocks: Sequence[torch.nn.Module]) -> Iterator[None]:
        """Follow which module and which repeated block runs."""
        paths = {id(module): name for name, module in model.named_modules()}
        index_of = {id(block): index for index, block in enumerate(blocks)}

        def before(module: torch.nn.Module, inputs: Any) -> None:
            index = index_of.get(id(module))
            here = self._modules[-1]
            path = paths.get(id(module), here.module)
            if index is None:
                self._modules.append(_Place(here.run, here.block, path))
                return
            run = self._run_of(index)
            self._modules.append(_Place(run, index, path))

        def after(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            self._modules.pop()

        def enter_block(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            self._enter(index_of[id(module)], (args, kwargs))

        torch_modules = torch.nn.modules.module
        handles = [
            torch_modules.register_module_forward_pre_hook(before),
            torch_modules.register_module_forward_hook(after, always_call=True),
            *(block.register_forward_pre_hook(enter_block, with_kwargs=True) for block in blocks),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def start(self, phase: Phase) -> None:
        """Start a phase of the step."""
        self.phase = phase
        self._modules = [_Place(ROOT, None, "")]

    # --- operations ----------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and record it."""
        with no_torch_function():
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func.namespace not in ("aten", "gpuplan"):
            return func(*args, **kwargs)
        if self.device == "meta":
            if func is _LOCAL_SCALAR and args[0].is_meta:
                return self._data_dependent("Tensor.item")
            operands = _tensors_in((args, kwargs))
            if concerns_sparse(func, args, operands):
                return run_sparse(func, args, kwargs, self._dispatch)
            args, kwargs, known = self._on_device(func, args, kwargs, operands)
            if not known:
                return func(*args, **kwargs)
        if self._pauses and not (
            may_need_values(func) and values_needed(func, all_arguments(func, args, kwargs))
        ):
            return None if self._only_writes(func, args, kwargs) else func(*args, **kwargs)
        if _is_view(func):
            out = func(*args, **kwargs)
            if self.phase == "forward":
                self._note_node(False)
            return out
        arguments = all_arguments(func, args, kwargs)
        shapes = tuple(map(_shape, arguments))
        operation = values_needed(func, shapes)
        if operation == MASKED_INDEX:
            return self._dispatch(func, (args[0], self._as_rows(args[1])), {})
        if operation is None:
            out = self._run(func, args, kwargs, shapes)
        elif gives_answer(func):
            return bool(self._data_dependent(operation))
        else:
            out = at_stated_size(func, operation, arguments, self._size)
            if out is None:
                return self._data_dependent(operation)
        if not self._pauses:
            self._record(func, arguments, shapes, out)
        return out

    def _as_rows(self, indices: Sequence[Any]) -> list[Any]:
        """Return the indices of an indexing with masks as a GPU takes them: rows, not masks."""
        rows: list[Any] = []
        for index in indices:
            if is_mask(index):
                self._masked_index = True
                found = self._dispatch(torch.ops.aten.nonzero.default, (index,), {})
                self._masked_index = False
                rows += found.unbind(1)
            else:
                rows.append(index)
        return rows

    def _size(self, operation: str, available: int) -> int:
        """Return how many values an operation finds, as stated; or refuse it."""
        if self._masked_index and running_node_name() == EMBEDDING_BACKWARD:
            return available  # Rows that are no padding: all of them at most.
        return self._size_of(MASKED_INDEX if self._masked_index else operation, available)

    def _on_device(
        self,
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

    def _run(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: tuple[Any, ...]
    ) -> Any:
        """Run an operation; from its remembered output shapes where it only makes new tensors."""
        if self.device != "meta":
            return func(*args, **kwargs)
        if self._only_writes(func, args, kwargs):
            return None
        if not _makes_new_tensors(func):
            return self._run_in_place(func, args, kwargs, shapes)
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
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: tuple[Any, ...]
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
        if known and out is args[0] and _shape(out) == shapes[0]:
            _UNCHANGED.add((func, shapes))
        return out

    def _only_writes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether an operation would do nothing here but write values, of which none are.

        torch works out the shapes of each tensor in the lists of a foreach optimizer in Python,
        which was half the time of a trace. Lists that do not match are left to torch to refuse.
        """
        if self.device != "meta" or not _writes_lists(func):
            return False
        lists = [each for each in args if _is_tensor_list(each)]
        loose = [each for each in args if not any(each is one for one in lists)]
        if not lists or _tensors_in((loose, kwargs)):
            return False
        first = [(tensor.shape, tensor.dtype, True) for tensor in lists[0]]
        return all(
            [(tensor.shape, tensor.dtype, tensor.is_meta) for tensor in each] == first
            for each in lists
        )

    def _record(
        self, func: Any, arguments: tuple[Any, ...], shapes: tuple[Any, ...], out: Any
    ) -> None:
        name, writes = op_name(func), _writes(func)
        touched = self._storages_in(arguments)
        place, weighs = self._place(touched)
        new: list[TensorShape] = []
        instance = self._instance(place)
        if self.phase == "backward":
            self._note_uses(touched, place.run)
        elif writes and self.phase == "forward":
            self._note_write(arguments[0])
        for tensor in _tensors_in((out,)):
            if tensor.device.type != self.device:
                continue
            storage = tensor.untyped_storage()
            if storage._cdata not in self._live and storage.nbytes():
                self._birth(storage, self.tick, name)
                new.append(_shape(tensor))
        if name == "_to_copy" and not self._weights.isdisjoint(touched):
            self._weights.update(t.untyped_storage()._cdata for t in _tensors_in((out,)))
        if name not in NO_KERNEL and (new or writes):
            instance.calls.append((Call(func, shapes, tuple(new)), place.module, weighs))
            instance.ticks.append(self.tick)
        self.tick += 1

    # --- where an operation belongs --------------------------------------------------------------

    def _place(self, touched: Sequence[int]) -> tuple[_Place, bool]:
        """Return where the running operation belongs, and whether it multiplies a weight.

        Args:
            touched: keys of the storages that it takes.
        """
        here = self._modules[-1]
        if self.phase == "forward" or here.run != ROOT:
            weighs = not self._weights.isdisjoint(touched)
            self._note_node(weighs)
            return here, weighs
        number = running_node_number() if self.phase == "backward" else None
        if number is None or number > NEVER:
            return (self._last_place if self.phase == "backward" else here), False
        at = bisect_right(self._nodes, number) - 1
        found = self._node_places[at] if at >= 0 else (here, False)
        self._last_place = found[0]
        self._running_node_tick = self._node_ticks[at] if at >= 0 else -1
        return found

    _last_place = _Place(ROOT, None, "")

    def _note_node(self, weighs: bool) -> None:
        number = next_node_number() - 1
        if not self._nodes or number > self._nodes[-1]:
            self._nodes.append(number)
            self._node_places.append((self._modules[-1], weighs))
            self._node_ticks.append(self.tick)
        elif weighs and number == self._nodes[-1]:
            self._node_places[-1] = (self._modules[-1], True)
            self._node_ticks[-1] = self.tick

    def _instance(self, place: _Place) -> BlockExecution:
        phase: Phase = self.phase
        if phase == "backward" and self._modules[-1].run != ROOT:
            phase = "recompute"
        last = self.instances[-1] if self.instances else None
        if last is not None and last.phase == phase and last.run == place.run:
            return last
        made = BlockExecution(phase, place.run, place.block, self.tick)
        self.instances.append(made)
        return made

    def _run_of(self, block: int) -> int:
        """Return the number of this execution of a block; a recompute has its forward's number."""
        if self.phase == "backward":
            for instance in self.instances:
                if instance.block == block and instance.phase == "forward":
                    return instance.run
        self._runs += 1
        return self._runs - 1

    def _enter(self, block: int, inputs: Any) -> None:
        if self.phase != "forward":
            return
        run = self._modules[-1].run
        with no_torch_function():
            tensors = [t for t in _tensors_in(inputs) if t.device.type == self.device]
            for tensor in tensors:
                known = self._live.get(tensor.untyped_storage()._cdata)
                if known is not None and self.rows.entered[known[0]] == ROOT:
                    self.rows.entered[known[0]] = run
            floats = [t for t in tensors if t.is_floating_point()]
            if block not in self.boundary_bytes and floats:
                self.boundary_bytes[block] = floats[0].numel() * floats[0].element_size()

    def _storages_in(self, values: Any) -> list[int]:
        """Return the keys of the storages on the device among these values."""
        if self.device == "meta":
            return [t.untyped_storage()._cdata for t in _tensors_in(values) if t.is_meta]
        found = [t for t in _tensors_in(values) if t.device.type == self.device]
        return [tensor.untyped_storage()._cdata for tensor in found]

    # --- storages --------------------------------------------------------------------------------

    def _birth(self, storage: Any, tick: int, producer: str) -> None:
        key, row = storage._cdata, len(self.rows.birth)
        rows = self.rows
        rows.birth.append(tick)
        rows.death.append(NEVER)
        rows.bytes.append(storage.nbytes())
        rows.category.append(TEMPORARY)
        rows.instance.append(len(self.instances) - 1 if tick >= 0 else -1)
        rows.producer.append(producer)
        rows.entered.append(ROOT)
        rows.outside.append(-1)
        rows.inside.append(-1)
        rows.kept.append(False)

        def died(_: Any, self: Recorder = self, key: int = key, row: int = row) -> None:
            self._live.pop(key, None)
            self._weights.discard(key)
            self.rows.death[row] = self.tick

        self._live[key] = (row, weakref.ref(storage, died))

    def _note_write(self, target: Any) -> None:
        for key in self._storages_in((target,)):
            known = self._live.get(key)
            if known is not None:
                self._written[known[0]] = self.tick

    def _note_uses(self, touched: Sequence[int], run: int) -> None:
        """Note which storages of the forward pass a backward operation needs."""
        rows = self.rows
        for key in touched:
            known = self._live.get(key)
            if known is None:
                continue
            row = known[0]
            born_in = rows.instance[row]
            if born_in >= 0 and self.instances[born_in].phase != "forward":
                continue
            made_by = self.instances[born_in].run if born_in >= 0 else None
            if made_by == run:
                rows.inside[row] = self.tick
            elif made_by is not None:
                rows.outside[row] = self.tick
            node_tick = self._running_node_tick
            if run != ROOT and node_tick >= 0:
                # What the operation itself made is saved only after it ran.
                made = node_tick in (rows.birth[row], self._written.get(row, -1))
                end = node_tick + (1 if made else 0)
                self.rerun_end[run] = max(self.rerun_end.get(run, 0), end)
                self.release[run] = self.tick + 1


_LOCAL_SCALAR = torch.ops.aten._local_scalar_dense.default
_REMEMBERED: dict[tuple[Any, tuple[Any, ...]], Any] = {}
_UNCHANGED: set[tuple[Any, tuple[Any, ...]]] = set()
"""Operations in place, with the shapes of their operands, that gave back the first as it was."""
_ODD = object()
"""Remembered of operations whose outputs share or exceed their storage: run them every time."""


@cache
def _is_view(func: Any) -> bool:
    """Return whether an operation only gives a new view of its input."""
    if func.is_view:
        return True
    return op_name(func) in ("detach", "_unsafe_view", "lift_fresh", "alias", "is_pinned", "set")


@cache
def _writes(func: Any) -> bool:
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
    return func._schema.name.endswith("_") and len(returns) == 1 and _writes(func)


@cache
def _writes_lists(func: Any) -> bool:
    """Return whether it writes into lists of tensors and returns nothing."""
    return op_name(func).startswith("_foreach_") and _writes(func) and not func._schema.returns


def _is_tensor_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], torch.Tensor)


def _shape(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return TensorShape(tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return tuple(map(_shape, value))
    return value


def _is_compact(out: Any) -> bool:
    """Return whether every output fills a storage of its own, as a newly made tensor would."""
    tensors = _tensors_in((out,))
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


def _tensors_in(values: Any) -> list[torch.Tensor]:
    """Return the tensors among values, in order; a list, since every operation asks several times.

    A generator that calls itself takes three times as long, and a loop over time steps has 10^5
    operations.
    """
    found: list[torch.Tensor] = []
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple, dict)) and value:
            found += _tensors_in(value)
    return found


def _moved(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value if value.is_meta or value.dim() == 0 else value.to("meta")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_moved, value))
    if isinstance(value, dict):
        return {key: _moved(each) for key, each in value.items()}
    return value
