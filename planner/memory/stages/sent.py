"""What interleaved pipeline stages sent, which torch keeps to the end of a step.

torch's interleaved schedule waits for its sends when all micro-batches are through (torch 2.13,
distributed/pipelining/schedules.py, `_PipelineScheduleRuntime._step_microbatches`: `send_ops`), and
NCCL's process group holds what is sent until it is waited for (ProcessGroupNCCL.hpp,
`stashed_for_allocator_safety_`). With one chunk a stage every send is waited for at once.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

Bytes = TypeVar("Bytes", float, np.ndarray)


def sent_bytes(boundary_bytes: Bytes, virtual_stages: Bytes, grad_accum: Bytes) -> Bytes:
    """Return bytes that a rank sent and still holds at the end of a step.

    Every chunk sends its output on and the gradient of its input back; those of the outputs that
    wait for their backward pass are counted among the activations too.

    Args:
        boundary_bytes: of the residual stream of one micro-batch.
        virtual_stages: chunks of a stage.
        grad_accum: micro-batches per step.
    """
    return (virtual_stages > 1) * 2 * virtual_stages * grad_accum * boundary_bytes
