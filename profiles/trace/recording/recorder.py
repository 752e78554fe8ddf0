"""Watches one training step: every operation as a `Call`, every storage from birth to death.

Ticks count the operations that are no view. Operations are grouped into *instances*: what one
execution of a block (or the root between two blocks) ran in one phase. In the backward pass an
operation belongs to the instance whose forward pass made its autograd node.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...profile import Phase
from ..gpu.sparse import concerns_sparse, parts_of, run_sparse
from ..kernels.fourier import TO_REAL
from ..kernels.operations import TensorShape
from ..torch_private import (
    next_node_number,
    no_torch_function,
    running_node_name,
    running_node_number,
)
from .execution import BlockExecution, Place
from .meta import on_device, only_writes, run_on_meta, tensors_in
from .operation import Known, Operation, operation_of, shape_of, shapes_of
from .routing import RoutedShare, Routing, routing_of
from .stated_sizes import (
    MASKED_INDEX,
    SizeOf,
    at_stated_size,
    gives_answer,
    is_mask,
    values_needed,
)
from .storages import NEVER, ROOT, Rows, Storages
from .uses import Uses

EMBEDDING_BACKWARD = "EmbeddingBackward0"
"""Autograd node that leaves the padding's rows out of a sparse gradient."""
LOOKED_AT_EVERY = 256
CROSS_ENTROPIES = frozenset(("nll_loss_forward", "nll_loss2d_forward"))
_LOCAL_SCALAR = torch.ops.aten._local_scalar_dense.default
_CLONE, _CONTIGUOUS = torch.ops.aten.clone.default, {"memory_format": torch.contiguous_format}


def _runs_forward_again() -> bool:
    """Return whether a node of the backward pass runs a part of the forward pass.

    Only there are gradients on, and only `backward` itself does anything before its first node.
    """
    return torch.is_grad_enabled() and running_node_number() is not None


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
        self._modules: list[Place] = [Place(ROOT, None, "")]
        self._losses: set[bool] = set()
        """Whether in the model, of each cross-entropy."""
        self._logits: set[tuple[int, int]] = set()
        """Of those in the model: among how many values each chooses, and how many it reads."""
        self.returns_logits = False
        """Whether the model returns the logits of such a loss, and gradients flow through them."""
        self._is_in_model = False
        self._runs = 0
        self._nodes: list[int] = []
        self._node_places: list[tuple[Place, bool]] = []
        self._node_ticks: list[int] = []
        self._running_node_tick = -1
        self.uses = Uses(self.storages, self.instances)
        self.at_work: Callable[[Recorder], None] | None = None
        """Called every `looked_at_every` ticks."""
        self.looked_at_every = LOOKED_AT_EVERY

    @property
    def rows(self) -> Rows:
        """The storages, one entry each, in order of birth."""
        return self.storages.rows

    @property
    def loss_in_model(self) -> bool:
        """Whether every cross-entropy is computed by the model, as those of transformers do."""
        return self._losses == {True}

    # --- called by the engine ------------------------------------------------------------------

    def hold(self, tensor: Any, category: int) -> None:
        """Note a storage that exists before the step, or change the category of a known one."""
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != self.device:
            return
        for part in parts_of(tensor):
            self.storages.hold(part.untyped_storage(), category)

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
            self._is_in_model |= module is model
            index = index_of.get(id(module))
            here = self._modules[-1]
            path = paths.get(id(module), here.module)
            if index is None:
                self._modules.append(Place(here.run, here.block, path))
                return
            run = self._run_of(index)
            self._modules.append(Place(run, index, path))

        def after(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            self._modules.pop()
            self._is_in_model &= module is not model
            if module is model and self._logits:
                with no_torch_function():
                    self.returns_logits |= any(map(self._are_logits, tensors_in((output,))))

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
        self._modules = [Place(ROOT, None, "")]

    def _are_logits(self, returned: torch.Tensor) -> bool:
        return returned.requires_grad and any(
            classes in returned.shape[1:] and returned.numel() >= read
            for classes, read in self._logits
        )

    def routed_share(self, looked_at: int) -> RoutedShare | None:
        """Return what one expert of the last router has of so many values, if they are its."""
        return self._routing and self._routing.share(looked_at)

    # --- operations ----------------------------------------------------------------------------

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave out the wrapper that keeps torch's compiler away: here nothing is compiled."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and record it."""
        with no_torch_function():
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operation = operation_of(func)
        if not operation.is_recorded:
            return func(*args, **kwargs)
        operands = tensors_in((args, kwargs)) if kwargs else tensors_in(args)
        if self.device == "meta":
            if func is _LOCAL_SCALAR and args[0].is_meta:
                return self._data_dependent("Tensor.item")
            if concerns_sparse(func, args, operands):
                return run_sparse(func, args, kwargs, self._dispatch)
            args, kwargs, known = on_device(operation, args, kwargs, operands)
            if not known:
                return func(*args, **kwargs)
        if self._pauses and not (
            operation.may_need_values and values_needed(func, operation.arguments(args, kwargs))
        ):
            return self._run_unrecorded(operation, args, kwargs)
        if operation.is_view:
            out = func(*args, **kwargs)
            if self.phase == "forward":
                self._note_node(False)
            return out
        return self._run(operation, args, kwargs, operands)

    def _run_unrecorded(
        self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run an operation while the recorder is paused: making an optimizer's state, mostly."""
        if self.device != "meta" or operation.rule is not None or not operation.makes_new:
            if self.device == "meta" and only_writes(operation, args, kwargs):
                return None
            return operation.func(*args, **kwargs)
        # torch works the shape of `zeros_like` out in Python, a millisecond for each parameter.
        known = operation.known_of(shapes_of(operation.arguments(args, kwargs)))
        return run_on_meta(operation, args, kwargs, known)

    def _run(
        self,
        operation: Operation,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        operands: Sequence[torch.Tensor],
    ) -> Any:
        """Run an operation that is no view, and record it.

        Args:
            operation: the operation.
            args: its arguments.
            kwargs: its named arguments.
            operands: the tensors among both.
        """
        func = operation.func
        if operation.name == TO_REAL and self.device == "meta":
            args = (self._dispatch(_CLONE, args[:1], _CONTIGUOUS), *args[1:])
        arguments = operation.arguments(args, kwargs)
        shapes = shapes_of(arguments)
        wanted = values_needed(func, shapes) if operation.may_need_values else None
        if wanted == MASKED_INDEX:
            return self._dispatch(func, (args[0], self._as_rows(args[1])), {})
        known: Known | None = None
        if wanted is None:
            if operation.may_route:
                self._routing = routing_of(func, shapes) or self._routing
            if self.device == "meta":
                known = operation.known_of(shapes)
                out = run_on_meta(operation, args, kwargs, known)
            else:
                out = func(*args, **kwargs)
        elif gives_answer(func):
            return bool(self._data_dependent(wanted))
        else:
            out = at_stated_size(func, wanted, arguments, self._size)
            if out is None:
                return self._data_dependent(wanted)
        if not self._pauses:
            self._record(operation, arguments[:1], operands, shapes, known, out)
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

    def _record(
        self,
        operation: Operation,
        first: tuple[Any, ...],
        operands: Sequence[torch.Tensor],
        shapes: tuple[Any, ...],
        known: Known | None,
        out: Any,
    ) -> None:
        touched = self._storages_of(operands)
        place, weighs = self._place(touched)
        instance = self._instance(place)
        if operation.name in CROSS_ENTROPIES:
            self._losses.add(self._is_in_model)
            if self._is_in_model:
                read = operands[0]
                self._logits.add((read.shape[:2][-1], read.numel()))
        if self.phase == "backward":
            self.uses.note(touched, place.run, self._running_node_tick, self.tick)
        elif operation.writes and self.phase == "forward":
            self.uses.note_write(self._storages_of(tensors_in(first)), self.tick)
        if known is not None and known.call is not None:
            # A tensor with a storage of its own: what it is was found when it was made first.
            self._note_birth(out.untyped_storage(), known.new_bytes, operation)
            call, is_new = known.call, True
        else:
            new = self._births(operation, out)
            call, is_new = operation.call(shapes, known, new), bool(new)
        if operation.is_copy and self.storages.has_weight(touched):
            self.storages.add_weights(t.untyped_storage()._cdata for t in tensors_in((out,)))
        if operation.has_kernel and (is_new or operation.writes):
            instance.calls.append((call, place.module, weighs))
            instance.ticks.append(self.tick)
            instance.reruns.append(instance.phase == "backward" and _runs_forward_again())
        self.tick += 1
        if not self.tick % self.looked_at_every and self.at_work is not None:
            self.at_work(self)

    def _births(self, operation: Operation, out: Any) -> tuple[TensorShape, ...]:
        """Note the storages that an operation made, and return the shapes of their tensors."""
        new: list[TensorShape] = []
        for tensor in tensors_in((out,)):
            if tensor.device.type != self.device:
                continue
            storage = tensor.untyped_storage()
            if self.storages.row(storage._cdata) is None and (size := storage.nbytes()):
                self._note_birth(storage, size, operation)
                new.append(shape_of(tensor))
        return tuple(new)

    def _note_birth(self, storage: Any, size: int, operation: Operation) -> None:
        made_in = len(self.instances) - 1
        self.storages.birth(
            storage, size, tick=self.tick, instance=made_in, producer=operation.name
        )

    # --- where an operation belongs --------------------------------------------------------------

    def _place(self, touched: Sequence[int]) -> tuple[Place, bool]:
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

    _last_place = Place(ROOT, None, "")

    def _note_node(self, weighs: bool) -> None:
        number = next_node_number() - 1
        if not self._nodes or number > self._nodes[-1]:
            self._nodes.append(number)
            self._node_places.append((self._modules[-1], weighs))
            self._node_ticks.append(self.tick)
        elif weighs and number == self._nodes[-1]:
            self._node_places[-1] = (self._modules[-1], True)
            self._node_ticks[-1] = self.tick

    def _instance(self, place: Place) -> BlockExecution:
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

    def _storages_of(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """Return the keys of the storages of those of these tensors that are on the device."""
        if self.device == "meta":
            return [each.untyped_storage()._cdata for each in tensors if each.is_meta]
        found = [each for each in tensors if each.device.type == self.device]
        return [tensor.untyped_storage()._cdata for tensor in found]
