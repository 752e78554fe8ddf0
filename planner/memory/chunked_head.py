"""A head that is applied chunk by chunk makes its weight's gradient as often.

A loss over chunks of the tokens runs the head once a chunk (torchtune 0.4-0.6,
modules/transformer.py, `chunked_output`). Autograd takes nodes in the reverse order of their
making, so the gradients of all chunks of logits exist before the first product of the head is
undone; from the second on a new gradient of the weight stands beside the sum of those before it.
"""

from __future__ import annotations

from ...profiles.passes.residence import LOSS_CHUNKS
from ...profiles.passes.storages import Storage, grows, storages_of, with_storages
from ...profiles.profile import CATEGORIES, StepTrace


def with_chunked_head(step: StepTrace) -> StepTrace:
    """Return a step of a chunked loss with the gradients that undoing the head chunk-wise holds.

    Args:
        step: the step, with its loss in chunks; heads that are not trained leave it as it is.
    """
    rows = storages_of(step.memory)
    weight = _weight_gradient(step, rows)
    if weight is None:
        return step
    made = weight["birth_tick"]
    logits = max(
        (row for row in rows if row["birth_tick"] < made < row["death_tick"]),
        key=lambda row: row["bytes_per_sample"] * (row["instance"] == weight["instance"]),
    )
    last = logits["bytes_per_sample"] // LOSS_CHUNKS
    if last and logits["instance"] == weight["instance"]:
        rows.append(logits | {"bytes_per_sample": last, "death_tick": made})
        logits["bytes_per_sample"] -= last
    temporary = {"category": CATEGORIES.index("temporary"), "death_tick": made + 1}
    rows.append(weight | temporary)
    return with_storages(step, rows)


def _weight_gradient(step: StepTrace, rows: list[Storage]) -> Storage | None:
    """Return the gradient of the head's weight: the largest that is made before the blocks'."""
    first = None
    for at, index in enumerate(step.schedule):
        segment = step.segments[index]
        if segment.phase == "backward" and segment.block is None:
            first = at
            break
    if first is None:
        return None
    born = [row for row in rows if row["instance"] == first and not grows(row)]
    return max(born, key=lambda row: row["bytes_base"], default=None)
