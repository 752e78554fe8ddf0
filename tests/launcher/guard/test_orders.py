"""The orders of a guard: read back as they were written, refused when they hold nothing."""

import json
import math
from dataclasses import replace

import pytest
from guards import STEP, make_orders
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.launcher.guard.orders import ACTIONS, Busy, Orders, OrdersError, ProjectionOrders

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
