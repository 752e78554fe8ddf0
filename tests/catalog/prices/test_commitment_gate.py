from decimal import Decimal

import pytest
from fake_cloud import commitment

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.prices.commitment_gate import passed_commitments

CATALOGUE = embedded_catalogue()
ON_DEMAND = {("aws", "us-east-1", "p5.48xlarge"): Decimal("55.04")}


def gate(*rows, last=(), on_demand=ON_DEMAND, **options):
    return passed_commitments(rows, CATALOGUE, last, on_demand, **options)


def rules(*rows, **options) -> list[str]:
    return [one.rule for one in gate(*rows, **options).refused]


def test_the_cheapest_plan_of_a_term_is_kept() -> None:
    rows = [
        commitment("41.5"),
        commitment("44", source="another plan"),
        commitment("27.25", 3, source="another plan"),
    ]
    kept = gate(*rows)
    assert [(one.term_years, one.usd_per_hour) for one in kept.rows] == [
        (1, Decimal("41.5")),
        (3, Decimal("27.25")),
    ]
    assert kept.refused == ()


@pytest.mark.parametrize("usd", ["0", "-1", "56"])
def test_what_is_no_price_of_a_commitment_never_passes(usd: str) -> None:
    [rule] = rules(commitment(usd), accept_changes=True)
    assert rule in ("not-positive", "committed-above-on-demand")


@pytest.mark.parametrize("usd", ["0.415", "10", "5.5"])
def test_a_first_price_far_below_on_demand_is_held_back_until_accepted(usd: str) -> None:
    [held] = gate(commitment(usd)).refused
    assert held.rule == "outlier" and "the on-demand price ($55.04)" in held.why
    assert rules(commitment(usd), accept_changes=True) == []


def test_a_price_far_from_the_last_one_is_held_back() -> None:
    last = [commitment("41.5"), commitment("12", 3)]
    assert rules(commitment("20"), last=last) == ["outlier"]
    assert rules(commitment("13", 3), last=last) == []


def test_without_any_price_the_accelerators_own_is_compared_with() -> None:
    assert rules(commitment("4150"), on_demand={}) == ["outlier"]
    assert rules(commitment("41.5"), on_demand={}) == []


def test_two_prices_of_one_plan_are_none() -> None:
    kept = gate(commitment("41"), commitment("42"))
    assert kept.rows == () and [one.rule for one in kept.refused] == ["listed-twice"]
    assert len(gate(commitment("41"), commitment("41")).rows) == 1


def test_an_instance_type_of_nobody_is_refused() -> None:
    assert rules(commitment("41", instance_type="p99.large")) == ["unmapped"]


def test_what_is_not_sold_on_demand_has_no_commitment() -> None:
    small = commitment("15", provider="gcp", region="us-central1", instance_type="a3-highgpu-2g")
    assert rules(small, accept_changes=True) == ["not-on-demand"]
