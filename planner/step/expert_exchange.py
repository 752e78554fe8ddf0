"""What of the exchanges between experts' ranks crosses nodes, and what of it lengthens the step."""

from __future__ import annotations

import numpy as np

from ..constants import Constants
from ..software.dispatch import Dispatch
from .data_parallel_comm import exposed_s
from .kernels.kernel_totals import SegmentTimes

Array = np.ndarray


def expert_share(
    sent_s: Array, times: SegmentTimes, dispatch: Dispatch, constants: Constants
) -> Array:
    """Return [B] the share of experts' exchanges that lengthens the step.

    Where those of one micro-batch run beside another's layers, all kernels of both passes can hide
    them: one's forward is paired with the other's backward.
    """
    if not dispatch.overlaps:
        name = "expert_exposure.nccl" if dispatch.stands_still else "expert_exposure"
        return np.full(sent_s.shape[-1], constants[name])
    sent, hiding = times.count @ sent_s, times.count @ times.total_s
    left = exposed_s(
        sent,
        np.zeros_like(sent),
        hiding,
        share=constants["hiding_share"],
        cost=np.array(constants["hiding_cost.fsdp"]),
    )
    return np.divide(left, sent, out=np.zeros_like(left), where=sent > 0)


def distinct_share(copies: float, nodes: int) -> float:
    """Return distinct nodes ÷ copies of a token that goes to this many experts at random.

    A token crosses to a node once and is copied there (DeepSeek-V3, arXiv:2412.19437, section
    3.2.2).
    """
    return nodes * (1 - (1 - 1 / nodes) ** copies) / copies
