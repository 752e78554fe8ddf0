"""A launch that goes on, at the prices of how it is bought this time."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from answers import make_offer, make_plan
from fake_engine import Clock
from launch_records import make_record

from gpuplan.catalog.errors import PriceError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.bundle import GUARD, write_orders
from gpuplan.launcher.guard.orders import HandOver, Orders, ProjectionOrders
from gpuplan.launcher.prepare.money.bought_again import bought_again
from gpuplan.launcher.prepare.task.orders_file import read_orders, renew_orders
from gpuplan.launcher.store.launch_record import Attempt, LaunchRecord, PricedPlace

NOW = datetime(2026, 11, 22, 13, 0, tzinfo=UTC)
SPOT = PricedPlace(infra="aws/us-east-1", usd_per_hour=Decimal(12), spot=True)
OTHER = PricedPlace(infra="aws/us-east-1", usd_per_hour=Decimal(36))


def of(tmp_path: Path, *places: PricedPlace, **changes: Any) -> LaunchRecord:
    attempt = Attempt(number=1, spot=True, asked_at=NOW)
    facts = {"places": places, "managed": True, "attempts": (attempt,), **changes}
    return make_record(tmp_path, Clock(), **facts)


def again(record: LaunchRecord, *, spot: bool, **changes: Any):
    facts = {"price_top": 1.0, "cap_usd": None, **changes}
    return bought_again(record, None, load_catalogue(), spot=spot, **facts).record


def test_a_hand_over_keeps_both_prices_or_that_of_its_second_task(tmp_path: Path) -> None:
    record = of(tmp_path, SPOT, OTHER)
    assert again(record, spot=True) == record
    on_demand = again(record, spot=False)
    assert on_demand.places == (OTHER,)
    assert on_demand.reserved_usd == record.reserved_usd, "its worst case was at that price"


def test_the_worst_case_rises_with_the_dearest_place_and_never_falls(tmp_path: Path) -> None:
    record = of(tmp_path, SPOT, controller_usd_per_hour=Decimal(1))
    plan = make_plan(offer=make_offer(usd_per_hour=36.0))
    risen = bought_again(
        record, plan, load_catalogue(), spot=False, price_top=1.2, cap_usd=Decimal(150)
    ).record
    assert risen.usd_worst == (60 * Decimal(36) / (Decimal("14.4") + 1)).quantize(Decimal("0.01"))
    assert risen.reserved_usd == risen.usd_worst
    held = bought_again(
        record, plan, load_catalogue(), spot=False, price_top=1.0, cap_usd=Decimal(100)
    ).record
    assert held.reserved_usd == 100, "its guard ends it there"
    unknown = of(tmp_path, SPOT, usd_worst=None, reserved_usd=None)
    assert again(unknown, spot=True).reserved_usd is None


@pytest.mark.parametrize(("spot", "way"), [(False, "go on with --spot"), (True, "--on-demand")])
def test_the_other_market_is_not_held_at_a_known_price(
    tmp_path: Path, spot: bool, way: str
) -> None:
    record = of(tmp_path, OTHER if spot else SPOT)
    with pytest.raises(PriceError, match="not known") as caught:
        again(record, spot=spot)
    assert way in str(caught.value.fix)


def test_a_cluster_of_ones_own_has_no_spot_price(tmp_path: Path) -> None:
    mine = PricedPlace(infra="k8s/lab", usd_per_hour=Decimal(5))
    plan = make_plan(offer=make_offer(purchase="owned", usd_per_hour=5.0))
    record = of(tmp_path, mine, managed=False)
    with pytest.raises(PriceError):
        bought_again(record, plan, load_catalogue(), spot=True, price_top=1.0, cap_usd=None)
    same = bought_again(record, plan, load_catalogue(), spot=False, price_top=1.0, cap_usd=None)
    assert same.record == record


def test_the_orders_have_the_prices_of_the_record(tmp_path: Path) -> None:
    record = of(tmp_path, SPOT, OTHER, controller_usd_per_hour=Decimal(1))
    made = Orders(
        run_id=record.run,
        usd_per_hour=37.0,
        requested_at_s=0.0,
        usd_per_hour_at={"aws/us-east-1": 37.0},
        spot_usd_per_hour_at={"aws/us-east-1": 13.0},
        price_top=1.2,
        max_cost_usd=500.0,
        projection=ProjectionOrders(total_steps=100, high_usd=74.0),
        hand_over=HandOver(total_steps=100, step_s=1.0, restart_s=600.0),
        after_usd=1.0 / 6,
        waiting_usd_per_hour=1.0,
        notices=True,
    )
    job = Path(record.folder) / "job"
    job.mkdir()
    write_orders(job, made)
    renew_orders(record, NOW)
    same = read_orders(record)
    assert (same.minimum_s, same.increment_s) == (record.minimum_s, record.billing_increment_s)
    assert (job / GUARD / "__main__.py").is_file(), "the guard of this version reads them"
    assert same.usd_per_hour_at == {"aws/us-east-1": 37.0}
    assert same.spot_usd_per_hour_at == {"aws/us-east-1": 13.0}
    assert (same.projection, same.hand_over, same.price_top) == (
        made.projection,
        made.hand_over,
        1.2,
    )
    assert same.after_usd == pytest.approx(made.after_usd)
    bought = again(record, spot=False).model_copy(update={"managed": False})
    renew_orders(bought, NOW)
    held = read_orders(record)
    assert (held.usd_per_hour, held.spot_usd_per_hour_at, held.hand_over) == (36.0, {}, None)
    assert (held.waiting_usd_per_hour, held.after_usd, held.price_top) == (0.0, 0.0, 1.0)
    assert held.projection is not None and held.projection.high_usd == pytest.approx(72.0)
