"""What torch copies beside the collectives of tensor ranks: NCCL cuts and joins along rows alone.

Tokens are the second dimension of what torch's layers pass on, the first is samples. So what is
gathered is cut and joined anew behind the collective, and what is to be scattered before it;
all-reduce copies its operand first. Megatron's activations start with the tokens and XLA lays them
out itself: neither copies.

Sources: torch 2.2 (2024-01) to 2.13, distributed/_functional_collectives.py (`gather_dim` and
`scatter_dim` that are not 0), csrc/distributed/c10d/Functional.cpp (`all_reduce`), and
distributed/_symmetric_memory/__init__.py (`_fused_all_gather_matmul_impl`,
`_fused_matmul_reduce_scatter_impl`); _inductor/comm_lowering.py, whose copy before an all-reduce
"is eliminated via in-place reuse".
"""

from __future__ import annotations

from dataclasses import dataclass

from ...catalog.vocabulary import Stack
from ..plan.setup import Date
from .versions import ASYNC_TENSOR_PARALLEL

VIEW_OF_ONE_SAMPLE: Date = (2026, 3)
"""torch 2.11: what was gathered of a single sample is joined without a copy
(pytorch/pytorch#169404, of 2025-12)."""
_COPY = 2.0
"""A buffer is read and written."""


@dataclass(frozen=True, kw_only=True)
class CollectiveCopies:
    """How often the whole buffer of a collective is read or written beside it."""

    gathered: float = 0.0
    """In the forward pass."""
    gathered_again: float = 0.0
    """In the backward pass, and where blocks run again: weights' gradients read it then."""
    scattered: float = 0.0
    reduced: float = 0.0
    views_one: bool = False
    """Whether what is gathered of a single sample stays where it is."""


NO_COPIES = CollectiveCopies()


def collective_copies(
    stack: Stack, date: Date | None, features: frozenset[str], *, compiled: bool
) -> CollectiveCopies:
    """Return what a stack copies.

    Asynchronous tensor parallelism multiplies each rank's part as it comes, so that the whole is
    joined for the gradients of weights alone, and adds up the ranks' parts where a copy was made.

    Args:
        stack: torch's alone copy.
        date: of the software; None is today.
        features: as run records name them.
        compiled: whether Inductor compiles the layers.
    """
    if not stack.startswith("torch"):
        return NO_COPIES
    views_one = date is None or date >= VIEW_OF_ONE_SAMPLE
    if ASYNC_TENSOR_PARALLEL in features:
        return CollectiveCopies(gathered_again=_COPY, scattered=_COPY / 2, views_one=views_one)
    return CollectiveCopies(
        gathered=_COPY,
        gathered_again=_COPY,
        scattered=_COPY,
        reduced=0.0 if compiled else _COPY,
        views_one=views_one,
    )
