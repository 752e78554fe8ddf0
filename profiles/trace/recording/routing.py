"""Which router chose experts last, and so what share of its values a mask of one expert selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..kernels.operations import TensorShape, op_name

MOST_EXPERTS = 1024
"""A choice among more is one of classes or tokens."""
_TOP_K = "topk"
_BEST = ("argmax", "max")


@dataclass(frozen=True, kw_only=True)
class RoutedShare:
    """What share of the values that are looked at belongs to one expert of an even router."""

    share: float
    reason: str

    @property
    def percent(self) -> str:
        """Return it as `--assume-size` takes it."""
        return f"{100 * self.share:.6g}%"


@dataclass(frozen=True, kw_only=True)
class Routing:
    """A choice of k of so many experts, for each of so many tokens."""

    tokens: int
    experts: int
    k: int

    def share(self, looked_at: int) -> RoutedShare | None:
        """Return what one expert has of so many values; None if these are no tokens of it.

        Args:
            looked_at: the values of a mask: one for a token, for each of its k choices, or for each
                choice and expert (a one-hot mask as a whole).
        """
        share = {
            self.tokens: self.k / self.experts,
            self.tokens * self.k: 1 / self.experts,
            self.tokens * self.k * self.experts: 1 / self.experts,
        }.get(looked_at)
        if share is None:
            return None
        return RoutedShare(
            share=share,
            reason=(
                f"(tokens × k ÷ experts, of the {looked_at:,} values that are looked at: the top"
                f" {self.k} of {self.experts} experts, each chosen as often as the others)."
            ),
        )


def may_route(func: Any) -> bool:
    """Return whether an operation may be the choice of experts."""
    name = op_name(func)
    return name == _TOP_K or name in _BEST


def routing_of(func: Any, arguments: Sequence[Any]) -> Routing | None:
    """Return the choice of experts that an operation may be; None for all others.

    Args:
        func: the operation.
        arguments: the shapes of its arguments, in the order of its schema.
    """
    if not may_route(func):
        return None
    name = op_name(func)
    scores, rest = arguments[0], arguments[1:]
    if not isinstance(scores, TensorShape) or not scores.shape:
        return None
    k = rest[0] if name == _TOP_K else 1
    dim = (rest[1:] if name == _TOP_K else rest)[:1]
    if not dim or not isinstance(dim[0], int) or dim[0] not in (-1, len(scores.shape) - 1):
        return None
    experts = scores.shape[-1]
    if not 1 < experts <= MOST_EXPERTS or not 0 < k < experts:
        return None
    return Routing(tokens=prod(scores.shape[:-1]), experts=experts, k=k)
