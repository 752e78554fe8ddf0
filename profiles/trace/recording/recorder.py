"""Watches one training step: every operation as a `Call`, every storage from birth to death.

Ticks count the operations that are no view. Operations are grouped into *instances*: what one
execution of a block (or the root between two blocks) ran in one phase. In the backward pass an
operation belongs to the instance whose forward pass made its autograd node.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...profile import Phase
from ..gpu.sparse import concerns_sparse, run_sparse
from ..kernels.operations import NO_KERNEL, Call, TensorShape, all_arguments, op_name
from ..torch_private import (
    next_node_number,
    no_torch_function,
    running_node_name,
    running_node_number,
)
from .meta import is_view, on_device, only_writes, run_on_meta, shape_of, tensors_in, writes
from .routing import RoutedShare, Routing, routing_of
from .stated_sizes import (
    MASKED_INDEX,
    SizeOf,
    at_stated_size,
    gives_answer,
    is_mask,
    may_need_values,
    values_needed,
)
from .storages import NEVER, ROOT, Rows, Storages

EMBEDDING_BACKWARD = "EmbeddingBackward0"
"""Autograd node that leaves the padding's rows out of a sparse gradient."""
_LOCAL_SCALAR = torch.ops.aten._local_scalar_dense.default


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
        self.storages = Storages(lambda: self.tick)
        self.boundary_bytes: dict[int, int] = {}
        """Floating-point bytes that enter each repeated block at its first execution."""
        self._data_dependent = data_dependent
        self._size_of = size_of or (lambda operation, _available: data_dependent(operation))
        self._masked_index = False
        self._routing: Routing | None = None
        self._pauses = 0
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

    @property
    def rows(self) -> Rows:
        """The storages, one entry each, in order of birth."""
        return self.storages.rows

    # --- called by the engine ------------------------------------------------------------------

    def hold(self, tensor: Any, category: int) -> None:
        """Note a storage that exists before the step, or change the category of a known one."""
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != self.device:
            return
        self.storages.hold(tensor.untyped_storage(), category)

    def keep(self, tensor: torch.Tensor) -> None:
        """Note that autocast keeps this storage until its region ends."""
        with no_torch_function():
            row = self.storages.row(tensor.untyped_storage()._cdata)
        if row is not None:
            self.rows.kept[row] = True

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

    def routed_share(self, looked_at: int) -> RoutedShare | None:
        """Return what one expert of the last router has of so many values, if they are its."""
        return self._routing and self._routing.share(looked_at)

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
            operands = tensors_in((args, kwargs))
            if concerns_sparse(func, args, operands):
                return run_sparse(func, args, kwargs, self._dispatch)
            args, kwargs, known = on_device(func, args, kwargs, operands)
            if not known:
                return func(*args, **kwargs)
        if self._pauses and not (
            may_need_values(func) and values_needed(func, all_arguments(func, args, kwargs))
        ):
            if self.device == "meta" and only_writes(func, args, kwargs):
                return None
            return func(*args, **kwargs)
        if is_view(func):
            out = func(*args, **kwargs)
            if self.phase == "forward":
                self._note_node(False)
            return out
        arguments = all_arguments(func, args, kwargs)
        shapes = tuple(map(shape_of, arguments))
        operation = values_needed(func, shapes)
        if operation == MASKED_INDEX:
            return self._dispatch(func, (args[0], self._as_rows(args[1])), {})
        if operation is None:
            self._routing = routing_of(func, shapes) or self._routing
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

    def _run(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: tuple[Any, ...]
    ) -> Any:
        if self.device != "meta":
            return func(*args, **kwargs)
        return run_on_meta(func, args, kwargs, shapes)

    def _record(
        self, func: Any, arguments: tuple[Any, ...], shapes: tuple[Any, ...], out: Any
    ) -> None:
        name, is_written = op_name(func), writes(func)
        touched = self._storages_in(arguments)
        place, weighs = self._place(touched)
        new: list[TensorShape] = []
        instance = self._instance(place)
        if self.phase == "backward":
            self._note_uses(touched, place.run)
        elif is_written and self.phase == "forward":
            self._note_write(arguments[0])
        for tensor in tensors_in((out,)):
            if tensor.device.type != self.device:
                continue
            storage = tensor.untyped_storage()
            if self.storages.row(storage._cdata) is None and storage.nbytes():
                made_in = len(self.instances) - 1
                self.storages.birth(storage, tick=self.tick, instance=made_in, producer=name)
                new.append(shape_of(tensor))
        if name == "_to_copy" and self.storages.has_weight(touched):
            self.storages.add_weights(t.untyped_storage()._cdata for t in tensors_in((out,)))
        if name not in NO_KERNEL and (new or is_written):
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
            weighs = self.storages.has_weight(touched)
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
            tensors = [t for t in tensors_in(inputs) if t.device.type == self.device]
            for tensor in tensors:
                row = self.storages.row(tensor.untyped_storage()._cdata)
                if row is not None and self.rows.entered[row] == ROOT:
                    self.rows.entered[row] = run
            floats = [t for t in tensors if t.is_floating_point()]
            if block not in self.boundary_bytes and floats:
                self.boundary_bytes[block] = floats[0].numel() * floats[0].element_size()

    def _storages_in(self, values: Any) -> list[int]:
        """Return the keys of the storages on the device among these values."""
        if self.device == "meta":
            return [t.untyped_storage()._cdata for t in tensors_in(values) if t.is_meta]
        found = [t for t in tensors_in(values) if t.device.type == self.device]
        return [tensor.untyped_storage()._cdata for tensor in found]

    # --- storages --------------------------------------------------------------------------------

    def _note_write(self, target: Any) -> None:
        for key in self._storages_in((target,)):
            row = self.storages.row(key)
            if row is not None:
                self._written[row] = self.tick

    def _note_uses(self, touched: Sequence[int], run: int) -> None:
        """Note which storages of the forward pass a backward operation needs."""
        rows = self.rows
        for key in touched:
            row = self.storages.row(key)
            if row is None:
                continue
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
