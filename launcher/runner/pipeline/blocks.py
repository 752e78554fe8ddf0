"""The repeated blocks of a model as the places where pipeline stages meet.

A directed block asks a `Director` what to do each time it is called. Only `__call__` is taken over,
by a subclass of the block's own class: hooks, `forward`, `compile()`, names and `isinstance` stay
as they are, so FSDP, recompute and torch.compile may be put on a block before or after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ....catalog.errors import UsageError
from ....profiles.user_model.structure.blocks import cut_paths

Act = Callable[[int, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Told a block's number, what really calls it, and what it was called with."""


def block_paths(model: nn.Module) -> tuple[str, ...]:
    """Return the paths of the blocks to cut between: of one container, in its order.

    Of several containers with repeated blocks, the one whose blocks hold most parameters.

    Raises:
        UsageError: no container repeats a block.
    """
    paths = cut_paths(model)
    if not paths:
        raise UsageError(
            "The model has no repeated blocks that pipeline stages could hold.",
            fix="leave pipeline parallelism out, or keep equal layers in an nn.ModuleList.",
        )
    return paths


def first_tensor(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the hidden state a block is called with: its first tensor, by position or by name."""
    given = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
    return next((one for one in given if one.is_floating_point()), None)


def with_tensor(given: Any, old: Tensor, new: Tensor) -> Any:
    """Return arguments with one tensor in place of another."""
    return tree_map(lambda one: new if one is old else one, given)


class Director:
    """Takes over the calls of a model's blocks."""

    def __init__(self, model: nn.Module, paths: Sequence[str]) -> None:
        self._act: Act | None = None
        self._blocks = [model.get_submodule(path) for path in paths]
        self.present: frozenset[int] = frozenset(range(len(paths)))
        """Numbers of the blocks that have their parameters here."""
        for index, block in enumerate(self._blocks):
            block.__class__ = _directed(type(block))
            block.__dict__["_pipeline_director"] = self
            block.__dict__["_pipeline_index"] = index

    @contextmanager
    def acting(self, act: Act) -> Iterator[None]:
        """Let `act` decide what the blocks do."""
        before, self._act = self._act, act
        try:
            yield
        finally:
            self._act = before

    def dismiss(self) -> None:
        """Leave the blocks as they were."""
        for block in self._blocks:
            block.__class__ = type(block).__mro__[2]
            del block.__dict__["_pipeline_director"], block.__dict__["_pipeline_index"]

    def call(
        self, index: int, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return what a block that is called now returns."""
        if self._act is not None:
            return self._act(index, call, args, kwargs)
        if index not in self.present:
            # Only a recompute in the backward pass calls blocks outside of a stage's forward pass.
            raise UsageError(
                "The model's own activation checkpoints span several blocks, so pipeline stages"
                " cannot run them again.",
                fix="checkpoint each block by itself, or ask for recompute in the plan instead.",
            )
        return call(*args, **kwargs)


class _Directed:
    """A block that asks its director."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        director: Director = self.__dict__["_pipeline_director"]
        call: Callable[..., Any] = super().__call__  # pyright: ignore[reportAttributeAccessIssue]
        return director.call(self.__dict__["_pipeline_index"], call, args, kwargs)


@cache
def _directed(kind: type[nn.Module]) -> type[nn.Module]:
    # One class for all blocks of a kind, so that they still count as equal.
    return type(kind.__name__, (_Directed, kind), {"__module__": kind.__module__})
