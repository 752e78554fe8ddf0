"""How tokens go to experts by what a record says of its recipe."""

import pytest

from gpuplan.planner.constants import Constants
from gpuplan.planner.software.dispatch import (
    Dispatch,
    dispatch_of,
    routing_passes,
    waiting_launch_s,
)

USUAL = Constants.shipped()


def test_experts_cost_less_beside_their_products_where_kernels_are_fused() -> None:
    none: frozenset[str] = frozenset()
    usual = routing_passes("megatron", none, USUAL)
    lean = routing_passes("torch-eager", frozenset({"deepep"}), USUAL)
    assert 0 < USUAL["routing_passes.fused"] < lean < usual
    assert routing_passes("torch-eager", none, USUAL) == usual
    assert routing_passes("xla", none, USUAL) == lean


def test_products_that_are_not_grouped_need_no_sorting() -> None:
    assert routing_passes("megatron", frozenset({"sequential-experts"}), USUAL) == 0


def test_tensor_ranks_split_experts_where_a_record_says_so() -> None:
    assert not dispatch_of("megatron", frozenset()).splits_experts
    assert dispatch_of("megatron", frozenset({"experts-by-tensor"})).splits_experts


def test_nccl_sends_every_copy_and_hides_none() -> None:
    of_nccl = Dispatch(sends_once=False, overlaps=False, stands_still=True)
    assert dispatch_of("megatron", frozenset()) == of_nccl
    assert dispatch_of("torch-eager", frozenset({"deepep"})) == Dispatch(
        sends_once=True, overlaps=False
    )
    assert dispatch_of("megatron", frozenset({"overlapped-experts"})).overlaps
    assert not dispatch_of("xla", frozenset()).stands_still


@pytest.mark.parametrize("feature", ["cuda-graphs", "token-drop", "overlapped-experts"])
def test_the_host_waits_for_a_dispatch_unless_the_device_has_other_work(
    feature: str,
) -> None:
    assert waiting_launch_s("megatron", frozenset({"deepep"}), USUAL) > 0
    assert waiting_launch_s("megatron", frozenset({feature}), USUAL) == 0
    assert waiting_launch_s("xla", frozenset(), USUAL) == 0
