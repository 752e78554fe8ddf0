"""Whether a loss compares the samples of a micro-batch with each other, as CLIP's does.

Every sample is then compared with those beside it alone, so that the micro-batch is part of what is
trained: neither accumulation nor other ranks add any. The planner sees it in a traced Profile
(`planner/search/across_samples.py`), of which a run has none. Here the forward pass runs on tensors
without data, of three sizes: where one that is made outside of the repeated blocks grows with the
square of the micro-batch, it holds a number for each pair. Inside they dispatch samples, to experts
for one. The same pass shows a loss that may be a sum over its samples (`summed_loss.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from ....profiles.user_model.structure.blocks import find_blocks
from ....profiles.user_model.workload import Workload
from ..job import Execution
from ..pipeline.fake_tensors import quiet_torch, stand_ins
from .summed_loss import summed_loss_words, sums_samples

SIZES = (6, 10, 14)
"""Micro-batches at equal distances, even for losses of two views of each sample."""
SUMMED = 2
"""How torch's losses call `reduction="sum"` (torch/nn/_reduction.py)."""
LEAST_CURVATURE = 0.02
"""Of the tensor in the middle. A number for each pair has 0.32; a line has 0, and what is rounded
up, such as patches of a padded picture, next to nothing."""


@dataclass(frozen=True)
class LossSeen:
    """What a forward pass without data tells of a loss."""

    compares: bool
    """Whether it makes a number for each pair of samples; False where that is not known."""
    may_sum: bool
    """Whether it may be a sum over the samples: False where nothing is added up to one number, and
    where that is not known: a loss may note what it is given, which is to be each sample once."""


def loss_warnings(
    workload: Workload,
    model: nn.Module,
    execution: Execution,
    device: torch.device,
    *,
    everywhere: bool = True,
) -> tuple[str, ...]:
    """Return what a plan makes of a loss that is no mean over samples alone; nothing for others.

    Args:
        workload: the model file.
        model: whole; comes back as it was.
        execution: how it is run.
        device: where.
        everywhere: whether each process has the weights: all run the loss then, or none.
    """
    layout, accum, size = execution.layout, execution.grad_accum, execution.micro_batch
    own = workload.default_micro_batch
    if layout.data == accum == 1 and own in (None, size):
        return ()
    seen = look_at_loss(workload, model, device)
    if seen.compares:
        return (_compared_words(execution, own),)
    if everywhere and seen.may_sum and sums_samples(workload, model):
        return (summed_loss_words(execution, own),)
    return ()


def warnings_here(workload: Workload, execution: Execution) -> tuple[str, ...]:
    """Return the same of a model that is built for it, on this machine's processor.

    Args:
        workload: the model file.
        execution: how it is to be run.
    """
    return loss_warnings(workload, workload.build_model(), execution, torch.device("cpu"))


def _compared_words(execution: Execution, own: int | None) -> str:
    layout, accum, size = execution.layout, execution.grad_accum, execution.micro_batch
    words = (
        "the loss compares the samples of a micro-batch with each other: every sample with the"
        f" {size:,} of its own"
    )
    if accum > 1:
        words += f", and the {accum:,} that are accumulated add none"
    if layout.data > 1:
        words += f", and the other {layout.data - 1:,} of {layout.data:,} data-parallel ranks only"
        words += " what the file gathers from them"
    if own not in (None, size):
        words += f". The file's own micro-batch is {own:,}, which trains another objective"
    return words


def look_at_loss(workload: Workload, model: nn.Module, device: torch.device) -> LossSeen:
    """Return what the loss makes of samples without data.

    Args:
        workload: the model file.
        model: whole; comes back as it was.
        device: where the model will run; nothing is put there.
    """
    kept = torch.get_rng_state()
    try:
        made = [_seen(workload, model, size, device) for size in SIZES[:2]]
        may_sum = any(one.sums for one in made)
        if _are_straight(*(one.elements for one in made)):
            return LossSeen(compares=False, may_sum=may_sum)
        made.append(_seen(workload, model, SIZES[2], device))
    except Exception:  # noqa: BLE001 - the user's code, which may need values to run at all
        return LossSeen(compares=False, may_sum=False)
    finally:
        torch.set_rng_state(kept)
    elements = [one.elements for one in made]
    if len({len(one) for one in elements}) > 1:
        return LossSeen(compares=False, may_sum=True)
    compares = any(
        small - 2 * middle + large > LEAST_CURVATURE * middle
        for small, middle, large in zip(*elements, strict=True)
    )
    return LossSeen(compares=compares, may_sum=may_sum)


def _are_straight(small: list[int], middle: list[int]) -> bool:
    """Return whether each result is as large as before or grew as the micro-batch did.

    It is so for nearly every model, of which two sizes then say all: a start takes less time.
    """
    if len(small) != len(middle):
        return False
    few, more = SIZES[:2]
    pairs = zip(small, middle, strict=True)
    return all(before == after or before * more == after * few for before, after in pairs)


def _seen(workload: Workload, model: nn.Module, size: int, device: torch.device) -> _Watch:
    """Return what was noted outside of the blocks in a forward pass."""
    micro_batch = workload.make_batch(size)

    def fake(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, device=device)

    with (
        quiet_torch(),
        FakeTensorMode(allow_non_fake_inputs=True),
        stand_ins(model, fake),
        _outside(model) as watch,
    ):
        batch = tree_map(lambda x: fake(x) if isinstance(x, Tensor) else x, micro_batch)
        with watch:
            workload.compute_loss(model, batch)
    return watch


@contextmanager
def _outside(model: nn.Module) -> Iterator[_Watch]:
    """Yield what notes the operations that run while no repeated block does."""
    watch = _Watch()

    def enter(*_: Any) -> None:
        watch.depth += 1

    def leave(*_: Any) -> None:
        watch.depth -= 1

    hooks = [
        handle
        for run in find_blocks(model)
        for block in run.modules
        for handle in (
            block.register_forward_pre_hook(enter),
            block.register_forward_hook(leave, always_call=True),
        )
    ]
    try:
        yield watch
    finally:
        for one in hooks:
            one.remove()


class _Watch(TorchDispatchMode):
    """Notes how many elements each operation gives, and whether one adds many up to one."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0
        """Of blocks that run."""
        self.elements: list[int] = []
        self.sums = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if not self.depth:
            made = [x.numel() for x in tree_leaves(found) if isinstance(x, Tensor)]
            self.elements += made
            self.sums = self.sums or (made[:1] == [1] and _adds_up(func, args, kwargs or {}))
        return found


def _adds_up(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether an operation is a sum, or a loss of torch that is one."""
    if func._schema.name == "aten::sum":
        return args[0].numel() > 1
    for place, one in enumerate(func._schema.arguments):
        if one.name == "reduction":
            given = args[place] if place < len(args) else kwargs.get("reduction")
            return given == SUMMED
    return False
