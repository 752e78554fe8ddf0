"""Spot: a known price, an unknown one, or no such sale."""

from decimal import Decimal

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.spot import spot_status
from gpuplan.catalog.types import Instance, Offer

CATALOGUE = load_catalogue()


def first(provider: str, instance_type: str | None = None) -> tuple[Offer, Instance]:
    for offer in CATALOGUE.offers:
        instance = CATALOGUE.instance_of(offer)
        named = instance_type in (None, offer.instance_type)
        if offer.provider == provider and named and instance is not None:
            return offer, instance
    raise AssertionError(f"{provider} sells no {instance_type}")


def without_spot(offer: Offer, basis: str = "list") -> Offer:
    changes = {"spot_usd_per_hour": None, "spot_is_market": False, "price_basis": basis}
    return offer.model_copy(update=changes)


def test_a_price_of_the_market_is_a_price_and_one_of_the_floor_is_not() -> None:
    offer, instance = first("aws", "g6.xlarge")
    price = {"spot_usd_per_hour": Decimal("0.3")}
    assert spot_status(offer.model_copy(update={**price, "spot_is_market": True}), instance) == (
        "price"
    )
    assert spot_status(offer.model_copy(update={**price, "spot_is_market": False}), instance) == (
        "unknown"
    )


@pytest.mark.parametrize(
    ("provider", "instance_type"),
    [("aws", "g4dn.xlarge"), ("azure", None), ("nebius", "gpu-h100-sxm_1gpu-16vcpu-200gb")],
)
def test_some_sell_spot_also_where_no_price_is_known(
    provider: str, instance_type: str | None
) -> None:
    offer, instance = first(provider, instance_type)
    assert spot_status(without_spot(offer), instance) == "unknown"


@pytest.mark.parametrize("provider", ["lambda", "digitalocean", "hyperstack", "vultr"])
def test_some_sellers_have_no_spot(provider: str) -> None:
    offer, instance = first(provider)
    assert spot_status(offer, instance) == "not sold"


def test_machines_of_ones_own_are_not_sold_and_of_a_type_without_classes_nothing_is_known() -> None:
    offer, instance = first("aws")
    bare = instance.model_copy(update={"usage_classes": ()})
    assert spot_status(without_spot(offer, "owned"), bare) == "not sold"
    assert spot_status(without_spot(offer), bare) == "unknown"


def test_no_offer_with_a_market_price_says_that_it_is_not_sold() -> None:
    for offer in CATALOGUE.offers:
        instance = CATALOGUE.instance_of(offer)
        if instance is not None and offer.market_spot_usd_per_hour is not None:
            assert spot_status(offer, instance) == "price"
