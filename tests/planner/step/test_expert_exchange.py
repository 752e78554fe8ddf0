"""What of the exchanges between experts' ranks crosses nodes and lengthens the step."""

import numpy as np
import pytest

from gpuplan.planner.constants import Constants
from gpuplan.planner.hardware.collectives import CallTable, CollectiveCall, Group
from gpuplan.planner.software.dispatch import Dispatch
from gpuplan.planner.step.expert_exchange import expert_share
from gpuplan.planner.step.kernels.kernel_totals import SegmentTimes

CONSTANTS = Constants.shipped()
ONE_MICRO_BATCH = np.array([[0.002], [0.004]])
"""[S, B] seconds of exchanges in a layer's two passes."""


def times(forward_s: float, backward_s: float) -> SegmentTimes:
    total = np.array([[forward_s], [backward_s]])
    return SegmentTimes(
        phase=("forward", "backward"),
        block=("layer", "layer"),
        count=np.array([32.0, 32.0]),
        compute_s=total / 2,
        memory_s=total / 2,
        total_s=total,
    )


def share(
    *,
    overlaps: bool,
    stands_still: bool = False,
    forward_s: float = 0.01,
    sent_s=ONE_MICRO_BATCH,
) -> float:
    dispatch = Dispatch(sends_once=True, overlaps=overlaps, stands_still=stands_still)
    (found,) = expert_share(sent_s, times(forward_s, 2 * forward_s), dispatch, CONSTANTS)
    return float(found)


def test_what_runs_beside_another_micro_batch_costs_what_it_takes_from_its_kernels() -> None:
    assert share(overlaps=False) == CONSTANTS["expert_exposure"]
    assert share(overlaps=True) == pytest.approx(CONSTANTS["hiding_cost.fsdp"], rel=0.01)
    assert share(overlaps=True, sent_s=0 * ONE_MICRO_BATCH) == 0


def test_nothing_runs_beside_a_call_of_nccl_but_another_micro_batch() -> None:
    assert 1 >= share(overlaps=False, stands_still=True) > 1.5 * share(overlaps=False)
    assert share(overlaps=True, stands_still=True) == share(overlaps=True)


def test_short_layers_hide_less_of_it() -> None:
    assert share(overlaps=True, forward_s=0.0001) > 0.9
    assert share(overlaps=True, forward_s=0.002) > share(overlaps=True)


def test_of_an_all_to_all_what_goes_to_the_own_node_does_not_cross() -> None:
    def sent(nodes: int) -> float:
        group = Group.packed(8 * nodes, 8)
        call = CollectiveCall(kind="all_to_all", total_bytes=1e9, group=group)
        table = CallTable.of([call]).across
        assert table is not None
        return float(table.sent_bytes[0])

    # Each of 8 ranks of a node has 1 GB, of which (nodes - 1) / nodes is for others.
    assert sent(2) == pytest.approx(8e9 / 2)
    assert sent(8) == pytest.approx(8e9 * 7 / 8)
