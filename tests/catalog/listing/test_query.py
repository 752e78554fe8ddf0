from dataclasses import replace
from decimal import Decimal

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.listing.query import (
    EEA_MEMBERS,
    EU_MEMBERS,
    OfferFilter,
    parse_filter,
    parse_jurisdiction,
    select_offers,
)
from gpuplan.catalog.snapshot import load_catalogue


def select(**words):
    catalogue = load_catalogue()
    return select_offers(catalogue, parse_filter(catalogue, **words))


def test_an_empty_filter_keeps_everything():
    assert select() == list(load_catalogue().offers)


def test_accelerator_and_number():
    offers = select(accelerators=["H100:8"])
    assert offers
    assert {o.accelerators for o in offers} == {8}
    assert all(o.accelerator.startswith("H100") for o in offers)
    assert len(select(accelerators=["H100"])) > len(offers)


def test_commas_and_repeats_mean_the_same():
    assert select(providers=["aws,gcp"]) == select(providers=["aws", "gcp"])
    assert select(accelerators=["L4,T4"]) == select(accelerators=["L4", "T4"])


def test_jurisdiction_never_matches_an_unknown_country():
    catalogue = load_catalogue()
    offers = select(jurisdictions=["eu"])
    assert {catalogue.jurisdiction_of(o) for o in offers} <= EEA_MEMBERS
    assert "global" not in {o.region for o in offers}
    assert {"eu-west-2", "eu-central-2"}.isdisjoint(o.region for o in offers if o.provider == "aws")
    assert {"norwayeast"} <= {o.region for o in offers}
    assert "norwayeast" not in {o.region for o in select(jurisdictions=["eu27"])}
    assert {o.region for o in select(jurisdictions=["de"], providers=["aws"])} == {"eu-central-1"}


def test_the_union_has_27_members():
    assert len(EU_MEMBERS) == 27
    assert len(EEA_MEMBERS) == 30


def test_price_limit_and_purchase():
    spot = select(purchase="spot", max_usd_per_hour=20, accelerators=["H100:8"])
    assert spot
    assert all(o.spot_usd_per_hour is not None and o.spot_usd_per_hour <= Decimal(20) for o in spot)
    on_demand = select(purchase="on-demand")
    assert all(o.on_demand_usd_per_hour is not None for o in on_demand)
    assert len(on_demand) == 2539


def test_a_spot_price_that_promises_nothing_passes_no_limit():
    everything = select(purchase="spot", instance_types=["p6-b200.48xlarge"])
    assert not all(o.spot_is_market for o in everything)
    for purchase in ("spot", "any"):
        within = select(purchase=purchase, max_usd_per_hour=30, instance_types=["p6-b200.48xlarge"])
        assert within and all(o.spot_is_market for o in within)


def test_launchable_leaves_marketplaces_out_and_keeps_the_users_own():
    offers = select(launchable_only=True)
    assert not any(o.marketplace or o.skypilot_cloud is None for o in offers)
    mine = offers[0].model_copy(update={"skypilot_cloud": None, "price_basis": "user"})
    catalogue = replace(load_catalogue(), offers=(mine,))
    assert select_offers(catalogue, OfferFilter(launchable_only=True)) == [mine]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"accelerators": ["H100:0"]}, "asks for '0' accelerators"),
        ({"accelerators": ["H100:eight"]}, "asks for 'eight'"),
        ({"accelerators": ["H100:nan"]}, "asks for 'nan'"),
        ({"accelerators": ["H1000"]}, "There is no accelerator 'H1000'.*Did you mean"),
        ({"providers": ["asw"]}, "There is no provider 'asw'.*Did you mean aws"),
        ({"regions": ["us-east-9"]}, "There is no region"),
        ({"jurisdictions": ["europe"]}, "There is no jurisdiction"),
        ({"jurisdictions": ["xx"]}, "No region of the catalogue is in 'xx'"),
        ({"jurisdictions": ["deu"]}, "There is no jurisdiction 'deu'"),
        ({"instance_types": ["p5.49xlarge"]}, "Did you mean p5.4xlarge|Did you mean p5.48xlarge"),
        ({"max_usd_per_hour": 0}, "not above zero"),
        ({"max_usd_per_hour": float("nan")}, "not above zero"),
    ],
)
def test_bad_words_are_usage_errors(words, message):
    with pytest.raises(UsageError, match=message):
        parse_filter(load_catalogue(), **words)


def test_country_codes():
    assert parse_jurisdiction("DE") == {"de"}
    assert parse_jurisdiction("us") == {"us"}
