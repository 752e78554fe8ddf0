"""What is not sold on demand has no price on demand, and no commitment."""

from gpuplan.catalog.embedded import CURATED_DIR, embedded_catalogue
from gpuplan.catalog.terms.commitments import commitments_of
from gpuplan.catalog.terms.on_demand import sold_otherwise

CATALOGUE = embedded_catalogue()


def test_its_offers_are_spot_alone() -> None:
    for provider, instance_type in sold_otherwise(CURATED_DIR):
        offers = [
            one
            for one in CATALOGUE.offers
            if (one.provider, one.instance_type) == (provider, instance_type)
        ]
        assert offers and all(one.on_demand_usd_per_hour is None for one in offers)
        assert any(one.spot_usd_per_hour for one in offers)
        assert all("alone" in (one.note or "") for one in offers)
        assert all(not commitments_of(provider, one.region, instance_type) for one in offers)


def test_others_of_its_series_keep_theirs() -> None:
    (offer,) = (
        one
        for one in CATALOGUE.offers
        if (one.region, one.instance_type) == ("us-central1", "a3-highgpu-8g")
    )
    assert offer.on_demand_usd_per_hour is not None
    assert commitments_of("gcp", "us-central1", "a3-highgpu-8g")
