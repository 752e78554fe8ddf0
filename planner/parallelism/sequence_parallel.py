"""What sequence parallelism gathers for a moment: gradients of the residual stream, whole.

A row layer's products take the gradient of its result for all tokens, of which a rank holds a part
(Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2): it exists whole while they run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...profiles.profile import CATEGORIES, Segment, StepTrace
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
    columns: Mapping[str, np.ndarray], trace: StepTrace, gathered: Sequence[Sequence[Gathered]]
) -> dict[str, np.ndarray]:
    """Return a stream with the gathered tensors as storages of their own, in order of birth.

    Args:
        columns: of the stream, by the names of `MemoryStream`; -1 is nothing, also where they have
            no entry for a gathered tensor.
        trace: says when each instance of a segment starts.
        gathered: by segment.
    """
    rows = [
        {
            "birth_tick": trace.start_tick[at] + trace.segments[index].offsets[one.first_kernel],
            "death_tick": trace.start_tick[at] + trace.segments[index].offsets[one.last_kernel] + 1,
            "bytes_base": 0,
            "bytes_per_sample": round(one.bytes_per_sample),
            "bytes_per_pair": 0,
            "bytes_per_triple": 0,
            "category": TEMPORARY,
            "instance": at,
        }
        for at, index in enumerate(trace.schedule)
        if trace.segments[index].offsets
        for one in gathered[index]
    ]
    if not rows:
        return dict(columns)
    longer = {
        name: np.concatenate([values, np.array([row.get(name, -1) for row in rows])])
        for name, values in columns.items()
    }
    order = np.argsort(longer["birth_tick"], kind="stable")
    return {name: values[order] for name, values in longer.items()}
