"""Which machines a question can choose from, and at which prices: those of the row's own region."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import Catalogue, load_catalogue
from gpuplan.catalog.types import Offer
from gpuplan.planner.plan.question import Machine, Money, Work
from gpuplan.planner.search.machines.offers import (
    Market,
    PricedInstance,
    refuse_unknown_place,
    survey,
)

CATALOGUE = load_catalogue()
PROVIDERS = sorted({offer.provider for offer in CATALOGUE.offers})
REGIONS = sorted({(offer.provider, offer.region) for offer in CATALOGUE.offers})
PURCHASES = ("on-demand", "spot", "any")
EVERYTHING = {
    purchase: survey(CATALOGUE, Machine(providers=("all",)), Money(purchase=purchase))
    for purchase in PURCHASES
}


def offers_of(choice: PricedInstance) -> list[Offer]:
    wanted = (choice.offer.provider, choice.offer.instance_type)
    return [o for o in CATALOGUE.offers if (o.provider, o.instance_type) == wanted]


def with_offers(*offers: Offer) -> Catalogue:
    return replace(CATALOGUE, offers=offers)


def surveyed(*offers: Offer, purchase: str = "on-demand") -> Market:
    money = Money(purchase=purchase)  # type: ignore[arg-type]
    return survey(with_offers(*offers), Machine(providers=("all",)), money)


def p6(region: str, spot: str | None, *, is_market: bool, on_demand: str | None = "100") -> Offer:
    real = next(o for o in CATALOGUE.offers if o.instance_type == "p6-b200.48xlarge")
    prices = {
        "on_demand_usd_per_hour": None if on_demand is None else Decimal(on_demand),
        "spot_usd_per_hour": None if spot is None else Decimal(spot),
        "spot_is_market": is_market,
    }
    return real.model_copy(update={"region": region, **prices})


def assert_prices_are_its_own(choice: PricedInstance) -> None:
    """Every price is of the very row: provider, region and type; a spot price of the market."""
    same = [o for o in offers_of(choice) if o.region == choice.offer.region]
    assert choice.offer in same
    if choice.purchase == "spot" and choice.usd_per_hour is not None:
        assert choice.usd_per_hour in {o.spot_usd_per_hour for o in same if o.spot_is_market}
    elif choice.usd_per_hour is not None:
        assert choice.usd_per_hour in {o.on_demand_usd_per_hour for o in same}
    if choice.spot_usd_per_hour is not None:
        assert choice.spot_usd_per_hour in {o.spot_usd_per_hour for o in same if o.spot_is_market}


@pytest.mark.parametrize("purchase", PURCHASES)
def test_all_prices_are_those_of_the_row(purchase: str) -> None:
    choices = EVERYTHING[purchase].choices
    assert len(choices) > 400
    for choice in choices:
        assert_prices_are_its_own(choice)


@settings(max_examples=25)
@given(
    st.sampled_from(PURCHASES),
    st.lists(st.sampled_from(PROVIDERS), unique=True, max_size=3),
    st.lists(st.sampled_from(REGIONS), unique=True, max_size=4),
)
def test_filters_keep_prices_to_their_rows(
    purchase: str, providers: list[str], places: list[tuple[str, str]]
) -> None:
    within = {*providers, *(provider for provider, _ in places)} or {"all"}
    regions = tuple(region for provider, region in places if region != "*")
    machine = Machine(providers=tuple(within), regions=regions)
    money = Money(purchase=purchase)  # type: ignore[arg-type]
    for choice in survey(CATALOGUE, machine, money).choices:
        assert_prices_are_its_own(choice)
        assert not regions or choice.offer.region in regions


@pytest.mark.parametrize("purchase", PURCHASES)
def test_no_region_is_cheaper_than_the_chosen_one(purchase: str) -> None:
    by_way: defaultdict[tuple[str, str, str], list[Decimal]] = defaultdict(list)
    for offer in CATALOGUE.offers:
        kind = offer.provider, offer.instance_type
        if offer.on_demand_usd_per_hour is not None:
            by_way[*kind, "on-demand"].append(offer.on_demand_usd_per_hour)
        if offer.spot_is_market and offer.spot_usd_per_hour is not None:
            by_way[*kind, "spot"].append(offer.spot_usd_per_hour)
    for choice in EVERYTHING[purchase].choices:
        prices = by_way[choice.offer.provider, choice.offer.instance_type, choice.purchase]
        assert choice.usd_per_hour == min(prices, default=None)
        assert purchase in (choice.purchase, "any")


def test_types_without_a_price_are_counted_and_stay() -> None:
    for market in EVERYTHING.values():
        unpriced = [choice for choice in market.choices if choice.usd_per_hour is None]
        assert len(unpriced) == market.without_price
    assert EVERYTHING["spot"].without_price > EVERYTHING["on-demand"].without_price


def test_a_floor_is_no_spot_price() -> None:
    floor, market = p6("us-east-2", "10", is_market=False), p6("us-east-1", "24", is_market=True)
    for purchase in ("spot", "any"):
        choice, *others = surveyed(floor, market, purchase=purchase).choices
        assert (choice.offer.region, choice.usd_per_hour) == ("us-east-1", Decimal(24))
        assert choice.purchase == "spot"
        assert [one.purchase for one in others] == ["on-demand"] * (purchase == "any")


def test_a_floor_alone_leaves_the_spot_price_unknown() -> None:
    floor = p6("us-east-2", "10", is_market=False)
    market = surveyed(floor, purchase="spot")
    (choice,) = market.choices
    assert (choice.usd_per_hour, choice.spot_usd_per_hour) == (None, None)
    assert (choice.purchase, market.without_price) == ("spot", 1)
    (choice,) = surveyed(floor, purchase="any").choices
    assert (choice.purchase, choice.usd_per_hour) == ("on-demand", Decimal(100))


def test_the_spot_price_beside_a_region_is_not_that_of_another() -> None:
    cheap = p6("us-east-2", None, is_market=False, on_demand="90")
    dear = p6("us-east-1", "24", is_market=True, on_demand="100")
    (choice,) = surveyed(cheap, dear).choices
    assert (choice.offer.region, choice.usd_per_hour) == ("us-east-2", Decimal(90))
    assert choice.spot_usd_per_hour is None
    assert choice.chosen().spot_usd_per_hour is None


@pytest.mark.parametrize("purchase", ["on-demand", "any"])
def test_of_regions_at_one_price_the_one_with_the_cheapest_spot_machines_is_taken(
    purchase: str,
) -> None:
    unknown = p6("ap-east-1", None, is_market=False)
    dear = p6("eu-west-1", "120", is_market=True)
    cheap, same = (p6(region, "110", is_market=True) for region in ("us-west-2", "us-east-2"))
    (choice,) = surveyed(unknown, dear, cheap, same, purchase=purchase).choices
    assert (choice.offer.region, choice.usd_per_hour) == ("us-east-2", Decimal(100))
    (choice,) = surveyed(unknown, dear, purchase=purchase).choices
    assert choice.offer.region == "eu-west-1"


def test_slices_and_unknown_machines_are_counted() -> None:
    real = next(o for o in CATALOGUE.offers if o.instance_type == "p6-b200.48xlarge")
    unknown = real.model_copy(update={"instance_type": "p99.48xlarge"})
    fraction = next(
        offer
        for offer in CATALOGUE.offers
        if (instance := CATALOGUE.instance_of(offer)) is not None and instance.is_fractional
    )
    market = surveyed(real, unknown, fraction)
    assert [choice.offer for choice in market.choices] == [real]
    assert (market.without_spec, market.cannot_train) == (1, 1)


def test_the_region_of_the_data_set_is_one_more_choice() -> None:
    near = p6("us-east-1", None, is_market=False, on_demand="110")
    far = p6("us-east-2", None, is_market=False, on_demand="100")
    work = Work(dataset_bytes=5e13, dataset_at="aws/us-east-1")

    def regions(*offers: Offer, of: Work) -> list[str]:
        machine = Machine(providers=("all",))
        market = survey(with_offers(*offers), machine, Money(), work=of)
        return [choice.offer.region for choice in market.choices]

    assert regions(near, far, of=Work()) == ["us-east-2"]
    assert regions(near, far, of=work) == ["us-east-2", "us-east-1"]
    assert regions(near, of=work) == ["us-east-1"]
    assert regions(far, of=work) == ["us-east-2"]


@pytest.mark.parametrize(
    ("place", "said"),
    [("awss/us-east-1", "Did you mean aws"), ("aws/us-east-9", "has no region 'us-east-9'")],
)
def test_a_data_set_in_a_place_that_is_not_known_is_refused(place: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        refuse_unknown_place(Work(dataset_bytes=1e9, dataset_at=place), CATALOGUE)
    for right in (None, "aws/us-east-1", "GCP/us-central1"):
        size_bytes = None if right is None else 1e9
        refuse_unknown_place(Work(dataset_bytes=size_bytes, dataset_at=right), CATALOGUE)
