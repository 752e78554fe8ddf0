"""The orders of a guard: read back as they were written, refused when they hold nothing."""

import json
import math
from dataclasses import replace

import pytest
from guards import STEP, make_orders
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.launcher.guard.orders import (
    ACTIONS,
    Busy,
    HandOver,
    Orders,
    OrdersError,
    ProjectionOrders,
)

usd = st.floats(0, 1e6)
maybe = st.none() | usd


@given(
    st.builds(
        Orders,
        run_id=st.text(),
        usd_per_hour=usd,
        usd_per_hour_at=st.dictionaries(st.text(), usd),
        requested_at_s=st.floats(0, 4e9),
        spent_before_usd=usd,
        after_usd=usd,
        waiting_usd_per_hour=usd,
        max_cost_usd=maybe,
        max_hours=maybe,
        min_gpu_utilization=st.none() | st.builds(Busy, st.floats(0, 1), usd),
        projection=st.none()
        | st.builds(
            ProjectionOrders,
            total_steps=st.integers(0, 10**9),
            expected_usd=maybe,
            low_usd=maybe,
            high_usd=maybe,
            action=st.sampled_from(ACTIONS),
        ),
        smoke=st.booleans(),
        deadline_s=maybe,
        spot_usd_per_hour_at=st.dictionaries(st.text(), usd),
        hand_over=st.none() | st.builds(HandOver, st.integers(0, 10**9), usd, usd),
    )
)
def test_orders_come_back_as_they_were_written(orders: Orders) -> None:
    assert Orders.from_json(orders.to_json()) == orders


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("usd_per_hour", None),
        ("usd_per_hour", -1),
        ("usd_per_hour", "4"),
        ("usd_per_hour", True),
        ("max_cost_usd", math.nan),
        ("max_hours", math.inf),
        ("poll_s", 0),
        ("usd_per_hour_at", {"aws/us-east-1": -1}),
        ("usd_per_hour_at", 4),
        ("min_gpu_utilization", {"fraction": 0.5}),
        ("min_gpu_utilization", {"fraction": "half", "for_s": 900}),
        ("spot_usd_per_hour_at", {"aws/us-east-1": "cheap"}),
        ("hand_over", {"total_steps": 10, "step_s": -1.0, "restart_s": 1.0}),
        ("hand_over", {"total_steps": 10}),
        ("projection", {"total_steps": 10, "action": "shrug"}),
        ("projection", {"total_steps": 10, "steps": 0}),
        ("max_cost", 400),
    ],
)
def test_orders_that_hold_nothing_are_refused(name: str, value: object) -> None:
    values = json.loads(make_orders().to_json())
    with pytest.raises(OrdersError):
        Orders.from_json(json.dumps({**values, name: value}))


@pytest.mark.parametrize("text", ["", "[]", "4", "{}", '{"run_id": "x"}'])
def test_what_is_no_orders_is_refused(text: str) -> None:
    with pytest.raises(OrdersError):
        Orders.from_json(text)


def test_the_price_is_that_of_the_place_where_it_runs() -> None:
    orders = make_orders(
        usd_per_hour=40.0,
        usd_per_hour_at={"aws/us-east-1": 20.0, "aws/us-west-2/us-west-2b": 10.0},
        projection=STEP,
    )
    cheap = orders.at("AWS", "us-west-2", "us-west-2b")
    assert cheap.usd_per_hour == 10.0
    assert cheap.projection == replace(STEP, expected_usd=2.5, low_usd=2.0, high_usd=3.0)
    assert orders.at("AWS", "us-east-1", "us-east-1c").usd_per_hour == 20.0
    for nowhere in (("AWS", "us-west-2", "us-west-2a"), ("GCP", "us-east-1", ""), ("", "", "")):
        assert orders.at(*nowhere) == orders


def test_spot_machines_have_a_price_of_their_own_where_both_are_tried() -> None:
    orders = make_orders(
        usd_per_hour=40.0,
        usd_per_hour_at={"aws/us-east-1": 40.0},
        spot_usd_per_hour_at={"aws/us-east-1": 10.0},
        projection=STEP,
    )
    spot = orders.at("aws", "us-east-1", "us-east-1a", is_spot=True)
    assert spot.usd_per_hour == 10.0
    assert spot.projection is not None and STEP.high_usd is not None
    assert spot.projection.high_usd == STEP.high_usd * 10.0 / 40.0
    assert orders.at("aws", "us-east-1", "us-east-1a").usd_per_hour == 40.0
    assert orders.at("aws", "eu-west-1", "", is_spot=True) == orders
