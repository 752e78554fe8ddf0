"""Whether a model's blocks run one after the other, found by one recorded run without data.

The forward pass and the loss run once on fake tensors (shapes only), while every operation is
watched. It shows what each phase reads: before the blocks, in block i, after the blocks. The model
can be cut between two blocks when nothing but the hidden state crosses: what comes from parameters
may be read only in the phase that computed it, and each block takes the very tensor that the one
before it returned.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten

from ....catalog.errors import GpuplanError, UsageError
from ....profiles.user_model.checks import Batch, described
from .blocks import Director, first_tensor
from .fake_tensors import quiet_torch, stand_ins

LossFunction = Callable[[nn.Module, Batch], Tensor]
BEFORE = -1
"""Phase before the first block; block i is phase i, and what follows n blocks is phase n."""
ALLOWED = (
    "leave pipeline parallelism out, or let the model run its repeated blocks once each, in order,"
    " each on what the one before it returned, and let nothing else from inside or before the"
    " blocks reach later ones or the loss."
)
_aten = torch.ops.aten
_SHAPE_ONLY = {
    _aten.empty_like, _aten.zeros_like, _aten.ones_like, _aten.full_like, _aten.rand_like,
    _aten.randn_like, _aten.new_empty, _aten.new_zeros, _aten.new_ones, _aten.new_full,
    _aten.new_empty_strided,
}  # fmt: skip
"""Operations whose result depends on the shape of what they are given, not on its values."""


@dataclass(frozen=True)
class BlockOutput:
    """What a block returns around its hidden state, so that a skipped block can return the same."""

    spec: TreeSpec
    leaves: tuple[Any, ...]
    """Numbers, None, or (shape, dtype) of a tensor; the hidden state's own place is `hidden`."""
    hidden: int

    def hidden_of(self, output: Any) -> Tensor:
        """Return the hidden state in what a block returned."""
        return tree_leaves(output)[self.hidden]

    def around(self, hidden: Tensor) -> Any:
        """Return the same structure with this hidden state and zeros elsewhere."""
        leaves = [
            torch.zeros((), dtype=leaf[1], device=hidden.device).expand(leaf[0])
            if isinstance(leaf, tuple)
            else leaf
            for leaf in self.leaves
        ]
        leaves[self.hidden] = hidden
        return tree_unflatten(leaves, self.spec)


@dataclass(frozen=True)
class Recording:
    """What one run of the whole model showed."""

    reads: dict[str, frozenset[int]]
    """Name of each parameter and buffer (every alias) → phases that read it."""
    outputs: tuple[BlockOutput, ...]
    writes_input: tuple[bool, ...]
    """Whether each block changes its hidden state in place."""


def record(
    compute_loss: LossFunction,
    model: nn.Module,
    micro_batch: Batch,
    paths: Sequence[str],
    device: torch.device,
) -> Recording:
    """Return what a run of the model on a micro-batch of this shape reads in each phase.

    Args:
        compute_loss: the user's function.
        model: whole; comes back as it was.
        micro_batch: of the real shape.
        paths: of the blocks, in order.
        device: where the model will run; nothing is put there.

    Raises:
        UsageError: the blocks do not run one after the other.
    """
    try:
        with quiet_torch(), FakeTensorMode(allow_non_fake_inputs=True):

            def fake(tensor: Tensor) -> Tensor:
                return torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device
                )

            with stand_ins(model, fake):
                watch = _Watch(model, paths)
                batch = tree_map(lambda x: fake(x) if isinstance(x, Tensor) else x, micro_batch)
                return watch.run(compute_loss, model, batch)
    except GpuplanError:
        raise
    except Exception:  # noqa: BLE001 - the user's code, which may need values to run at all
        copies = stand_ins(model, lambda buffer: buffer.clone(), parameters=False)
        with copies, torch.random.fork_rng(devices=[]):
            return _Watch(model, paths).run(compute_loss, model, micro_batch)


@dataclass
class _Watch:
    """Follows one run: which phase reads which parameter, and what crosses between phases."""

    model: nn.Module
    paths: Sequence[str]
    phase: int = BEFORE
    entered: int = 0
    """Blocks that have begun."""
    hidden: Tensor | None = None
    """What the last block returned."""
    version: int = 0
    outputs: list[BlockOutput] = field(default_factory=list)
    writes_input: list[bool] = field(default_factory=list)

    def run(self, compute_loss: LossFunction, model: nn.Module, batch: Batch) -> Recording:
        flow = _DataFlow(self)
        director = Director(model, self.paths)
        try:
            with director.acting(self.enter), flow:
                compute_loss(model, batch)
        finally:
            director.dismiss()
        if self.entered < len(self.paths):
            raise _refusal(f"only {self.entered} of {len(self.paths)} blocks ran")
        flow.check_parameters()
        reads = {name: frozenset(flow.reads[key]) for name, key in flow.names.items()}
        return Recording(
            reads=reads, outputs=tuple(self.outputs), writes_input=tuple(self.writes_input)
        )

    @property
    def is_between(self) -> bool:
        """Return whether the run is behind one block and before the next."""
        return self.phase > len(self.paths)

    def enter(
        self, index: int, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        path = self.paths[index]
        if index != self.entered:
            order = "runs more than once" if index < self.entered else "runs before earlier ones"
            raise _refusal(f"{path} {order}")
        given = first_tensor(args, kwargs)
        if given is None:
            raise _refusal(f"{path} is given no tensor")
        if index and (given is not self.hidden or given._version != self.version):
            raise _refusal(
                f"{path} is given something other than what {self.paths[index - 1]} returned"
            )
        self.entered, self.phase, self.hidden = index + 1, index, given
        version = given._version
        output = call(*args, **kwargs)
        self.writes_input.append(given._version != version)
        self.outputs.append(self._output(output, path))
        is_last = index + 1 == len(self.paths)
        self.phase = index + 1 if is_last else len(self.paths) + 1
        return output

    def _output(self, output: Any, path: str) -> BlockOutput:
        leaves, spec = tree_flatten(output)
        place = next((i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)), None)
        if place is None:
            raise _refusal(f"{path} returns {described(output)}")
        self.hidden = leaves[place]
        self.version = leaves[place]._version
        return BlockOutput(spec, tuple(_outline(leaf) for leaf in leaves), place)


class _DataFlow(TorchDispatchMode):
    """Marks every tensor that comes from a parameter with the phase that computed it."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self.reads: dict[int, set[int]] = defaultdict(set)
        self.names: dict[str, int] = {}
        self._watch = watch
        self._phase_of: dict[int, int] = {}
        self._kept: list[Any] = []  # A freed storage's address may come back as another's.
        model = watch.model
        buffers = dict(model.named_buffers(remove_duplicate=False))
        parameters = dict(model.named_parameters(remove_duplicate=False))
        for name, tensor in [*buffers.items(), *parameters.items()]:
            self.names[name] = self._key(tensor)
        # Backwards, so that a tied weight has the first of its names.
        self._parameters = {self.names[name]: name for name in reversed(parameters)}
        self._tensors = set(self.names.values())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        result = func(*args, **(kwargs or {}))
        if getattr(func, "overloadpacket", None) in _SHAPE_ONLY:
            return result
        phase = self._watch.phase
        keys = {self._key(tensor) for tensor in given}
        for key in keys & self._tensors:
            self.reads[key].add(phase)
        if any(key in self._parameters or key in self._phase_of for key in keys):
            self._check(keys, phase)
            for out in tree_leaves(result):
                if isinstance(out, Tensor) and (key := self._key(out)) not in self._parameters:
                    self._phase_of.setdefault(key, phase)
        return result

    def _check(self, keys: set[int], phase: int) -> None:
        if phase <= 0 or self._watch.is_between:
            return
        hidden = self._watch.hidden
        allowed = None if hidden is None else self._key(hidden)
        for key in keys:
            if key != allowed and self._phase_of.get(key, phase) != phase:
                raise _refusal(f"{self._reader(phase)} uses a value from {self._source(key)}")

    def _reader(self, phase: int) -> str:
        paths = self._watch.paths
        return "the code after the blocks" if phase == len(paths) else paths[phase]

    def _source(self, key: int) -> str:
        phase, paths = self._phase_of[key], self._watch.paths
        if phase == BEFORE:
            return f"before {paths[0]} beside its hidden state"
        return f"inside {paths[phase]}" if phase < len(paths) else "between the blocks"

    def check_parameters(self) -> None:
        """Refuse a model in which one phase uses parameters of another."""
        paths = self._watch.paths
        outside = {BEFORE, len(paths)}
        for key, name in reversed(self._parameters.items()):
            home = next((i for i, path in enumerate(paths) if name.startswith(path + ".")), None)
            wrong = self.reads[key] - (outside if home is None else {home})
            if not wrong:
                continue
            phase = min(wrong)
            where = (
                self._reader(phase)
                if 0 <= phase <= len(paths)
                else "the code before the blocks"
                if phase == BEFORE
                else "the code between the blocks"
            )
            raise _refusal(f"{where} uses the parameter {name}")

    def _key(self, tensor: Tensor) -> int:
        try:
            kept: Any = tensor.untyped_storage()
            key = int(kept._cdata)
        except (NotImplementedError, RuntimeError):  # Sparse tensors have no one storage.
            kept, key = tensor, id(tensor)
        self._kept.append(kept)
        return key


def _outline(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return tuple(leaf.shape), leaf.dtype
    return copy.copy(leaf) if isinstance(leaf, int | float | str | bool | None) else None


def _refusal(what: str) -> UsageError:
    return UsageError(
        f"The model cannot be cut into pipeline stages: {what}.",
        fix=ALLOWED,
    )
