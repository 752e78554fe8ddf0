"""Power of a node: against published measurements, and laws that any such model keeps."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.energy.power import (
    NodePower,
    Ranged,
    coefficients,
    modelled_power,
    stated_power,
)


def node(
    tdp_w: float, accelerators: int = 8, *, vcpus: float | None = None, busy_share: float = 1.0
) -> NodePower:
    return modelled_power(
        tdp_w=tdp_w,
        accelerators=accelerators,
        vcpus=vcpus,
        host_memory_bytes=None,
        busy_share=busy_share,
    )


@pytest.mark.parametrize(
    ("tdp_w", "accelerators", "published_w"),
    [
        # 76 % of the rated 10.2 kW in training: Newkirk et al. 2025, arXiv:2506.14551.
        (700, 8, 0.76 * 10_200),
        # The most that was seen of one such node: Latif et al. 2025, arXiv:2412.08602.
        (700, 8, 8_400),
        # One rack of GB200 NVL72: NVIDIA.
        (1200, 72, 120_000),
    ],
)
def test_published_power_of_nodes_is_within_the_interval(
    tdp_w: float, accelerators: int, published_w: float
) -> None:
    found = node(tdp_w, accelerators).training_w
    assert found.low < published_w < found.high
    assert found.high / found.low < 1.8


def test_no_node_is_said_to_draw_more_than_it_is_rated_for() -> None:
    assert node(700).training_w.high < 10_200
    assert node(400).training_w.high < 6_500


def test_bloom_as_its_authors_count_it() -> None:
    # 1,082,990 hours of A100: 433,196 kWh at the TDP of the GPUs and 256,646 kWh beside
    # (Luccioni et al. 2022, arXiv:2211.02001), before cooling.
    hours, stated_kwh = 1_082_990, 433_196 + 256_646
    found = node(400).training_w.scaled(hours / 8 / 1000)
    assert found.low < stated_kwh < found.high * 1.2
    assert abs(math.log(stated_kwh / found.value)) < math.log(1.25)


@given(tdp_w=st.floats(50, 1500), accelerators=st.integers(1, 16), busy=st.floats(0, 1))
def test_ends_are_in_order_and_idle_is_below_training(
    tdp_w: float, accelerators: int, busy: float
) -> None:
    found = node(tdp_w, accelerators, busy_share=busy)
    for one in (found.training_w, found.idle_w):
        assert 0 < one.low <= one.value <= one.high
    assert found.idle_w.value < found.training_w.value
    assert found.training_w.value <= node(tdp_w, accelerators).training_w.value


@given(tdp_w=st.floats(50, 1500), busy=st.floats(0, 1))
def test_a_hotter_device_draws_more_and_waiting_draws_less(tdp_w: float, busy: float) -> None:
    power = node(tdp_w, busy_share=busy).training_w.value
    assert node(tdp_w * 1.5, busy_share=busy).training_w.value > power
    assert node(tdp_w, busy_share=busy / 2).training_w.value <= power


def test_a_host_draws_no_less_than_its_processors_and_memory() -> None:
    small, large = node(70, 1), node(70, 1, vcpus=96)
    assert large.training_w.value - 0.9 * 70 == pytest.approx(96 * 2.12)
    assert large.training_w.value > 2 * small.training_w.value
    with_memory = modelled_power(tdp_w=70, accelerators=1, vcpus=96, host_memory_bytes=384e9)
    more_w = with_memory.training_w.value - large.training_w.value
    assert more_w == pytest.approx(384 * 0.392)


def test_stated_power_has_no_range() -> None:
    found = stated_power(training_w=10_200, idle_w=2_000)
    assert found.training_w == Ranged.exactly(10_200) and found.idle_w.high == 2_000
    assert (found.basis, node(700).basis) == ("stated", "modelled")


def test_products_and_sums_widen_less_than_the_worst_case() -> None:
    one = Ranged(value=10, low=8, high=12)
    assert one.times(one).high < 12 * 12 and one.times(one).low > 8 * 8
    assert one.plus(one).high < 24 and one.plus(one).low > 16
    assert one.times(Ranged.exactly(2.0)).high == pytest.approx(24)
    assert one.scaled(0.0).times(one) == Ranged.exactly(0.0)


def test_every_constant_has_an_ordered_range_a_unit_and_a_source() -> None:
    for name, one in coefficients().items():
        assert 0 < one.range.low < one.range.value < one.range.high, name
        assert one.unit and len(one.source) > 40, name
