from decimal import Decimal

import pytest
from fake_cloud import row

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.prices.gate import passed

CATALOGUE = embedded_catalogue()  # p5.48xlarge in us-east-1: $55.04.


def rules(*rows, **options) -> list[str]:
    return [one.rule for one in passed(rows, CATALOGUE, **options).refused]


def test_a_price_near_the_last_one_passes() -> None:
    gate = passed([row("60.00")], CATALOGUE)
    assert gate.refused == () and [one.usd_per_hour for one in gate.rows] == [Decimal(60)]


@pytest.mark.parametrize("usd", ["0", "-1", "NaN", "Infinity"])
def test_what_is_no_price_never_passes(usd: str) -> None:
    assert rules(row(usd), accept_changes=True) in (["not-positive"], ["not-a-number"])


@pytest.mark.parametrize("usd", ["5504", "0.5504", "111", "27"])
def test_a_price_far_from_the_last_one_is_held_back_until_accepted(usd: str) -> None:
    # Off by ten: https://github.com/vantage-sh/ec2instances.info/pull/886
    gate = passed([row(usd)], CATALOGUE)
    assert gate.rows == ()
    [held] = gate.refused
    assert held.rule == "outlier" and "the last price ($55.04)" in held.why
    assert rules(row(usd), accept_changes=True) == []


def test_a_first_price_is_compared_with_others_of_its_accelerator() -> None:
    new = {"region": "us-new-1"}
    assert rules(row("55", **new)) == []
    assert rules(row("5500", **new)) == ["outlier"]


def test_two_prices_for_one_place_are_none() -> None:
    # https://github.com/skypilot-org/skypilot/issues/3750
    gate = passed([row("55"), row("56")], CATALOGUE)
    assert gate.rows == () and [one.rule for one in gate.refused] == ["listed-twice"]
    assert len(passed([row("55"), row("55")], CATALOGUE).rows) == 1


def test_spot_above_on_demand_is_refused() -> None:
    # https://github.com/skypilot-org/skypilot/issues/4914
    spot = row("60", purchase="spot")
    gate = passed([row("55"), spot], CATALOGUE)
    assert [one.purchase for one in gate.rows] == ["on-demand"]
    assert [one.rule for one in gate.refused] == ["spot-above-on-demand"]


def test_an_instance_type_of_nobody_is_refused() -> None:
    assert rules(row("55", instance_type="p99.large")) == ["unmapped"]


def test_what_is_not_sold_on_demand_has_no_such_price() -> None:
    # Google lists one all the same: https://github.com/dstackai/gpuhunt/pull/176
    small = {"provider": "gcp", "region": "us-central1", "instance_type": "a3-highgpu-1g"}
    assert rules(row("11", **small), accept_changes=True) == ["not-on-demand"]
    assert rules(row("3.5", purchase="spot", **small)) == []
    assert rules(row("88", **(small | {"instance_type": "a3-highgpu-8g"}))) == []
