"""How tokens go to experts by what a record says of its recipe."""

import pytest

from gpuplan.planner.constants import Constants
from gpuplan.planner.software.dispatch import (
    Dispatch,
    ExpertHost,
    dispatch_of,
    expert_host,
    routing_passes,
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


def host(*features: str) -> ExpertHost:
    return expert_host("megatron", frozenset(features), USUAL)


@pytest.mark.parametrize("feature", ["cuda-graphs", "token-drop", "overlapped-experts"])
def test_the_host_waits_for_a_dispatch_unless_the_device_has_other_work(feature: str) -> None:
    assert host("deepep").waits
    assert not host(feature).waits
    assert not expert_host("xla", frozenset(), USUAL).waits


def test_the_host_launches_experts_one_by_one_until_a_graph_holds_them() -> None:
    alone, before, whole = host(), host("cuda-graphs"), host("cuda-graphs", "token-drop")
    assert alone.product_s == before.product_s > 0, "graphs of what precedes the dispatch"
    assert alone.launch_s > before.launch_s == 0
    assert whole == ExpertHost() == expert_host("torch-eager", frozenset(), USUAL)
