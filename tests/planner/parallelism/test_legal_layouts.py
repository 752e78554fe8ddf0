"""Which layouts a model and a machine allow."""

from collections.abc import Callable

import pytest

from gpuplan.planner.parallelism.legal_layouts import (
    Limits,
    Shape,
    legal_layouts,
    limits_of,
    pipelines,
    shardings,
)
from gpuplan.planner.parallelism.rank_parameters import expert_data_layout
from gpuplan.planner.plan.layout import Layout, parse_layout
from gpuplan.profiles.profile import Profile

Decoders = Callable[..., Profile]
LLAMA_70B = Limits(layers=80, tensor=(1, 2, 4, 8, 16), context=(1,), expert=(1,))
MIXTURE = Limits(layers=48, tensor=(1, 2, 4), context=(1, 2), expert=(1, 2, 4, 8, 16))


@pytest.mark.parametrize("limits", [LLAMA_70B, MIXTURE])
@pytest.mark.parametrize("nodes", [1, 2, 3, 16])
def test_the_degrees_multiply_to_the_ranks_and_stay_within_the_limits(
    limits: Limits, nodes: int
) -> None:
    found = list(legal_layouts(limits, nodes=nodes, per_node=8, domain=8))
    assert len(found) == len(set(found)) > 20
    for layout in found:
        assert layout.accelerators == 8 * nodes
        assert not layout.is_data_parallel_only
        assert layout.tensor in limits.tensor
        assert layout.expert in limits.expert
        assert layout.context in limits.context
        assert layout.pipeline * layout.virtual_stages <= limits.layers + 2
        assert parse_layout(str(layout)) == layout


@pytest.mark.parametrize(
    ("per_node", "domain", "most"), [(1, 1, 1), (4, 4, 4), (6, 6, 2), (16, 16, 8), (4, 72, 16)]
)
def test_tensor_ranks_stay_on_the_fast_link(per_node: int, domain: int, most: int) -> None:
    found = legal_layouts(LLAMA_70B, nodes=16, per_node=per_node, domain=domain)
    assert max(layout.tensor for layout in found) == most


@pytest.mark.parametrize(
    ("layers", "dealt", "refused"),
    [
        (80, [(4, 1), (4, 5), (2, 20), (8, 10)], [(3, 1), (8, 3)]),
        (126, [(16, 4), (16, 8), (2, 3)], [(5, 1)]),  # 128 with embedding and head.
        (61, [(16, 1), (2, 8)], [(5, 1)]),  # Neither: powers of two, some stages one more.
        (70, [(12, 1), (6, 6)], [(11, 1)]),
    ],
)
def test_stages_are_equal_or_a_power_of_two(layers: int, dealt: list, refused: list) -> None:
    found = pipelines(layers, 96 * 16)
    assert set(dealt) <= set(found)
    assert not set(refused) & set(found)


def test_the_state_is_shared_by_all_or_by_those_on_the_fast_link() -> None:
    assert shardings(1, 1, 8) == [(0, 1)]
    assert shardings(16, 1, 8) == [(0, 1), (1, 16), (2, 16), (3, 16), (3, 8)]
    assert shardings(1, 4, 8) == [(0, 1), (1, 4), (2, 4), (3, 4)]


@pytest.mark.parametrize("nodes", [1, 3, 5, 6, 16])
def test_ranks_that_share_experts_are_a_data_dimension_on_any_number_of_nodes(nodes: int) -> None:
    for layout in legal_layouts(MIXTURE, nodes=nodes, per_node=8, domain=8):
        experts = expert_data_layout(layout)
        assert experts.data * layout.expert == layout.data * layout.context * layout.tensor
        assert experts.shard <= max(layout.shard, experts.data if layout.zero_stage else 1)


def test_some_of_the_ranks_that_share_experts_have_one_copy_of_them() -> None:
    shared = Layout(data=24, shard=8, zero_stage=3, expert=2)
    assert (expert_data_layout(shared).data, expert_data_layout(shared).shard) == (12, 4)
    whole = Layout(data=24, shard=24, zero_stage=3, expert=2)
    assert expert_data_layout(whole).shard == 12


def test_ranks_that_split_each_expert_leave_fewer_that_hold_the_same() -> None:
    layout = Layout(data=32, shard=32, zero_stage=1, tensor=4, expert=8)
    assert [expert_data_layout(layout, split).data for split in (1, 4)] == [16, 4]


def test_a_model_without_repeated_blocks_is_not_split(make_decoder: Decoders) -> None:
    whole = make_decoder(layers=1)
    assert limits_of(whole.step("amp16"), 1024) is None


def test_a_model_that_tensor_parallelism_cannot_divide_keeps_its_stages(
    make_decoder: Decoders,
) -> None:
    limits = limits_of(make_decoder(layers=8).step("amp16"), 1024)
    assert limits is not None
    assert (limits.layers, limits.context, limits.expert) == (8, (1,), (1,))


def test_a_shape_and_its_data_dimension_are_a_layout() -> None:
    layout = Layout(data=8, shard=8, zero_stage=3, tensor=2, pipeline=4, virtual_stages=2)
    shape = Shape.of(layout)
    assert shape.ranks == 8
    assert shape.layout(8, shard=8, zero_stage=3) == layout
    assert Shape(expert=8, tensor=2).smallest().accelerators == 8
