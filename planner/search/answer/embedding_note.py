"""That the dense gradients of embedding tables are most of what a step moves, where they are."""

from __future__ import annotations

from collections.abc import Iterator

from ....catalog.text.quantity import format_bytes
from ....profiles.profile import Profile, Segment
from ...plan.setup import Setup

DENSE_GRADIENTS = (
    "embedding_dense_backward",
    "_embedding_bag_backward",
    "_embedding_bag_dense_backward",
)
"""They write a whole table, zeros for the rows that were not looked up (aten Embedding.cpp and
EmbeddingBag.cpp)."""
GRADIENT_BYTES = 4
"""Of one element: those of tables are fp32, unless the weights are not."""
WORTH_A_NOTE = 1 / 3
"""Share of the step's bytes from which it is said. A judgement."""


def embedding_notes(profile: Profile, setup: Setup) -> Iterator[str]:
    """Yield how much of a step's memory traffic is dense gradients of tables, where it is much.

    What sparse ones take is known once the file makes them: rows repeat, and not every optimizer
    takes them.
    """
    written = moved = 0.0
    for segment, times in _segments(profile):
        for kernel in segment.kernels:
            read, wrote = (
                one.at(setup.micro_batch) for one in (kernel.bytes_read, kernel.bytes_written)
            )
            moved += times * (read + wrote)
            if kernel.op in DENSE_GRADIENTS:
                written += times * kernel.bytes_written.base
    per_parameter = profile.optimizer.step_bytes_per_parameter
    updated = written / GRADIENT_BYTES * per_parameter
    dense = written * setup.grad_accum + updated
    whole = moved * setup.grad_accum + per_parameter * profile.trained_parameters
    if not whole or dense < WORTH_A_NOTE * whole:
        return
    alone = setup.layout.accelerators == 1
    where = "" if alone else ", on one accelerator alone (NCCL reduces none)"
    yield (
        f"{100 * dense / whole:.0f} % of the bytes that a step moves are dense gradients of"
        f" embedding tables ({format_bytes(written)} of gradients) and their updates, though a"
        " batch looks up few rows: sparse=True in these layers, with SGD without momentum, Adagrad"
        f" or SparseAdam, moves those alone{where}; what that saves is known once the file has it"
    )


def _segments(profile: Profile) -> Iterator[tuple[Segment, int]]:
    """Yield what runs in one micro-batch, and how often."""
    step = profile.steps[0]
    for number, segment in enumerate(step.segments):
        if segment.phase != "optimizer":
            yield segment, step.schedule.count(number)
