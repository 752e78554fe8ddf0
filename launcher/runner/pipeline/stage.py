"""One pipeline stage of any model: the user's own forward pass, with most of it left out.

Every stage runs the user's loss function on the same micro-batch, so that ids, labels, masks and
rotary tables need not travel; only the hidden state does:

- Parameters of other stages are zeros that take no memory. What comes before the blocks therefore
  runs on every stage, and on all but the first its result is thrown away.
- Blocks before the stage's own are skipped; the last skipped one returns the hidden state that was
  received, from where the gradient leaves again.
- When the first block behind the stage's own is called, the forward pass ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ....profiles.user_model.checks import Batch
from .blocks import Act, Director, first_tensor, with_tensor
from .cut import StageCut
from .dataflow import LossFunction


def build_stages(
    cut: StageCut,
    compute_loss: LossFunction,
    model: nn.Module,
    *,
    rank: int,
    ranks: int,
    device: torch.device,
    dtype: torch.dtype | None = None,
    cast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> list[StageModule]:
    """Return the stages of one pipeline rank: stage s belongs to rank s mod `ranks`.

    The model is taken apart: it keeps the parameters of these stages, on the device, and the
    memory of all others is freed.

    Args:
        cut: of this model.
        compute_loss: the workload's.
        model: the one that was cut, with the same weights on every rank.
        rank: of this process in its pipeline.
        ranks: of a pipeline.
        device: where the stages run.
        dtype: that weights have while they are used; None: their own.
        cast: gives the context of a forward pass, such as autocast.
    """
    mine = range(rank, cut.stages, ranks)
    kept = frozenset().union(*(cut.outside_of(stage) for stage in mine))
    blocks = [cut.paths[index] for stage in mine for index in cut.blocks_of(stage)]
    named = model.named_parameters(remove_duplicate=False)
    _hollow(
        model,
        {id(one) for name, one in named if name in kept or _is_inside(name, blocks)},
        device,
        dtype,
    )
    model.to(device)
    director = Director(model, cut.paths)
    director.present = frozenset(index for stage in mine for index in cut.blocks_of(stage))
    return [StageModule(cut, stage, compute_loss, model, director, cast) for stage in mine]


@dataclass
class Feed:
    """The micro-batches of one step, and what a stage found out about them."""

    micro_batches: Sequence[Batch]
    factors: Sequence[Tensor | float]
    """What each loss is multiplied by for its gradient: its part of the mean, times a scale."""
    number: int = 0
    """Index of the micro-batch whose forward pass comes next."""
    losses: dict[int, Tensor] = field(default_factory=dict)
    is_trained_on: bool = False
    """False while torch only learns the shapes that travel, on tensors of any values."""


class StageModule(nn.Module):
    """The parameters of one stage, named as in the whole model, and the part of a step they do.

    Names that this class adds begin with `pipeline_`, for all others may be the model's own.
    """

    def __init__(
        self,
        cut: StageCut,
        stage: int,
        compute_loss: LossFunction,
        model: nn.Module,
        director: Director,
        cast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        super().__init__()
        self.pipeline_stage = stage
        self.pipeline_cut = cut
        self.pipeline_feed: Feed | None = None
        self._pipeline_own = cut.blocks_of(stage)
        self._pipeline_loss = compute_loss
        self._pipeline_director = director
        self._pipeline_cast = cast
        self._pipeline_taken = False
        self._pipeline_model: nn.Module
        # Not registered: FSDP, DDP and optimizers are to see this stage's part alone.
        object.__setattr__(self, "_pipeline_model", model)
        _mirror(model, self, "", _Parts(cut, stage))

    @property
    def pipeline_blocks(self) -> list[nn.Module]:
        """Return this stage's blocks, each of which may be sharded, compiled or recomputed."""
        paths = self.pipeline_cut.paths
        return [self.get_submodule(paths[index]) for index in self._pipeline_own]

    @property
    def pipeline_trains(self) -> bool:
        """Return whether it computes a micro-batch of a step."""
        return self.pipeline_feed is not None and self.pipeline_feed.is_trained_on

    @property
    def pipeline_model(self) -> nn.Module:
        """Return the whole model, of which other stages' parameters are zeros."""
        return self._pipeline_model

    @contextmanager
    def pipeline_acting(self, act: Act) -> Iterator[None]:
        """Let `act` decide what the blocks do, in the precision of the run."""
        with self._pipeline_director.acting(act), self._pipeline_cast():
            yield

    def forward(self, hidden: Tensor | None = None) -> Tensor:
        """Return the hidden state behind this stage; the scaled loss from the last one."""
        feed = self.pipeline_feed
        assert feed is not None, "micro-batches are given before a step"
        batch = feed.micro_batches[feed.number]
        self._pipeline_taken = False

        def act(
            index: int, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            return self._enter(hidden, index, call, args, kwargs)

        with self.pipeline_acting(act):
            try:
                loss = self._pipeline_loss(self._pipeline_model, batch)
            except _StageEnd as end:
                return self._checked(end.hidden, hidden)
        self._checked(loss, hidden)
        feed.losses[feed.number] = loss.detach()
        return loss * feed.factors[feed.number]

    def _checked(self, output: Tensor, received: Tensor | None) -> Tensor:
        # Were it not so, the stages before would get no gradient, and nobody would see it.
        assert received is None or self._pipeline_taken, "a stage must use what it receives"
        return output

    def _enter(
        self,
        received: Tensor | None,
        index: int,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        own, cut = self._pipeline_own, self.pipeline_cut
        given = first_tensor(args, kwargs)
        assert given is not None, "the recorded run gave it one"
        if index in own:
            if received is not None and index == 0:  # The first stage has no block.
                args, kwargs = with_tensor((args, kwargs), given, self._take(received, index))
            output = call(*args, **kwargs)
            if index + 1 == len(cut.paths) and self.pipeline_stage + 1 < cut.stages:
                # The last stage has no block, only the head.
                raise _StageEnd(cut.outputs[index].hidden_of(output))
            return output
        if index >= own.stop:
            raise _StageEnd(given)
        if received is not None and index == own.start - 1:
            given = self._take(received, index + 1)
        return cut.outputs[index].around(given)

    def _take(self, received: Tensor, index: int) -> Tensor:
        """Return the hidden state that was received, for the block of this number."""
        self._pipeline_taken = True
        cut = self.pipeline_cut
        writes = index < len(cut.paths) and cut.writes_input[index]
        # A leaf of the graph may not be changed in place; a copy of it may.
        return received.clone() if writes else received

    def train(self, mode: bool = True) -> StageModule:
        """Set whether dropout and batch norm train, in the whole model."""
        super().train(mode)
        self._pipeline_model.train(mode)
        return self


class _StageEnd(BaseException):
    """Ends a forward pass behind a stage; no `except Exception` of the user's code may catch it."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden


class _Branch(nn.Module):
    """Stands for a module that contains blocks, in the names of a stage."""


class _Parts:
    """Which modules a stage registers."""

    def __init__(self, cut: StageCut, stage: int) -> None:
        self.outside = cut.outside_of(stage)
        self._paths = cut.paths
        self._own = {cut.paths[index] for index in cut.blocks_of(stage)}

    def is_branch(self, path: str) -> bool:
        """Return whether a module contains blocks."""
        return any(block.startswith(path + ".") for block in self._paths)

    def is_own(self, path: str) -> bool:
        """Return whether a module is a block of the stage, or used outside of the blocks there."""
        return path in self._own or any(name.startswith(path + ".") for name in self.outside)


def _mirror(source: nn.Module, holder: nn.Module, prefix: str, parts: _Parts) -> None:
    """Register the stage's modules in `holder` under the names that they have in `source`."""
    for name, child in source._modules.items():
        if child is None:
            continue
        path = prefix + name
        if parts.is_branch(path):
            branch = _Branch()
            _mirror(child, branch, path + ".", parts)
            if branch._modules or branch._parameters or branch._buffers:
                holder._modules[name] = branch
        elif parts.is_own(path):
            holder._modules[name] = child
    # The same dictionaries, not copies: FSDP replaces parameters, and the model must see that.
    if any(prefix + name in parts.outside for name in source._parameters):
        holder._parameters = source._parameters
    if any(prefix + name in parts.outside for name in source._buffers):
        holder._buffers = source._buffers
        holder._non_persistent_buffers_set = source._non_persistent_buffers_set


def _hollow(
    model: nn.Module, kept: set[int], device: torch.device, dtype: torch.dtype | None
) -> None:
    """Put zeros of one element, expanded, in place of all parameters but these (by id)."""
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is None or id(parameter) in kept:
                continue
            if isinstance(parameter, DTensor):
                # What tensor parallelism hung on it would exchange zeros between the ranks.
                module._forward_pre_hooks.clear()
                module._forward_hooks.clear()
            del module._parameters[name]
            # No parameter any more, so that nobody counts, shards or saves it.
            used = dtype if parameter.is_floating_point() else None
            zero = torch.zeros((), dtype=used or parameter.dtype, device=device)
            setattr(module, name, zero.expand(parameter.shape))


def _is_inside(name: str, paths: Sequence[str]) -> bool:
    return any(name.startswith(path + ".") for path in paths)


def trainable(stage: nn.Module, names: Sequence[str]) -> list[nn.Parameter]:
    """Return the trainable parameters of these names."""
    named = dict(stage.named_parameters(remove_duplicate=False))
    return [named[name] for name in names if named[name].requires_grad]
