"""Commitments: the terms of a type, shortest first, each below the price without one."""

from decimal import Decimal

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.commitments import by_place, commitments_of, read_commitments


def test_the_terms_of_a_type_come_shortest_first() -> None:
    one, three = commitments_of("gcp", "us-central1", "a3-highgpu-8g")
    assert (one.term_years, one.usd_per_hour) == (1, Decimal("61.383672"))
    assert (three.term_years, three.usd_per_hour) == (3, Decimal("38.864381"))


def test_what_no_table_says_is_no_term() -> None:
    assert commitments_of("aws", "us-east-1", "p5.48xlarge") == ()


def test_a_longer_commitment_never_costs_more_and_each_has_a_price() -> None:
    rows = read_commitments(validate=True)
    assert rows == read_commitments()
    assert len({(r.provider, r.region, r.instance_type, r.term_years) for r in rows}) == len(rows)
    for terms in by_place(rows).values():
        prices = [one.usd_per_hour for one in terms]
        assert prices == sorted(prices, reverse=True)
        assert min(prices) > 0 and all(one.source for one in terms)


def test_no_commitment_costs_more_than_the_price_without_one() -> None:
    compared = 0
    for offer in load_catalogue().offers:
        for row in commitments_of(offer.provider, offer.region, offer.instance_type):
            if offer.on_demand_usd_per_hour is not None:
                compared += 1
                assert row.usd_per_hour < offer.on_demand_usd_per_hour, offer
    assert compared > 500
