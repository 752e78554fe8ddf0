"""What sequence parallelism gathers for a moment: gradients of the residual stream, whole.

A row layer's products take the gradient of its result for all tokens, of which a rank holds a part
(Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2): it exists whole while they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...profiles.profile import CATEGORIES, MemoryStream, Segment, StepTrace
from .column_row_parallel import ParallelStyles, is_dense_linear
from .degrees import Split

TEMPORARY = CATEGORIES.index("temporary")


@dataclass(frozen=True)
class Gathered:
    """A whole tensor that lives from one kernel of a segment to another."""

    first_kernel: int
    last_kernel: int
    bytes_per_sample: float


def gathered_of(
    segment: Segment, styles: ParallelStyles | None, split: Split
) -> tuple[Gathered, ...]:
    """Return the gradients that a segment gathers, one for each row layer."""
    if not split.sequence_parallel or segment.phase != "backward" or styles is None:
        return ()
    products: dict[str, list[int]] = {}
    for i, kernel in enumerate(segment.kernels):
        if is_dense_linear(kernel) and styles.style.get(kernel.module) == "row":
            products.setdefault(kernel.module, []).append(i)
    found = []
    for module, at in products.items():
        tokens = max(segment.kernels[i].dims["m"].per_sample for i in at)
        width = 4 if segment.kernels[at[0]].dtype == "fp32" else 2
        size = width * tokens * styles.shapes[module].width_out / split.context
        found.append(Gathered(min(at), max(at), size))
    return tuple(found)


def with_gathered(
    stream: MemoryStream,
    trace: StepTrace,
    gathered: Sequence[Sequence[Gathered]],
    runs: Sequence[bool],
) -> MemoryStream:
    """Return a stream with the gathered tensors as storages of their own, in order of birth.

    Args:
        stream: of one stage.
        trace: says when each instance of a segment starts.
        gathered: by segment.
        runs: by instance of the schedule, whether this stage runs it.
    """
    rows = [
        {
            "birth_tick": trace.start_tick[at] + trace.segments[index].offsets[one.first_kernel],
            "death_tick": trace.start_tick[at] + trace.segments[index].offsets[one.last_kernel] + 1,
            "bytes_base": 0,
            "bytes_per_sample": round(one.bytes_per_sample),
            "category": TEMPORARY,
            "instance": at,
            "kept": 0,
        }
        for at, index in enumerate(trace.schedule)
        if runs[at] and trace.segments[index].offsets
        for one in gathered[index]
    ]
    if not rows:
        return stream
    columns = {
        name: [*values, *(row.get(name, -1) for row in rows)]
        for name in _COLUMNS
        if (values := getattr(stream, name))
    }
    order = np.argsort(columns["birth_tick"], kind="stable").tolist()
    return stream.model_copy(
        update={name: [values[i] for i in order] for name, values in columns.items()}
    )


_COLUMNS = [name for name in MemoryStream.model_fields if name != "end_tick"]
