"""Types that are billed for longer than the rest of their seller's."""

from gpuplan.catalog.embedded import CURATED_DIR, embedded_catalogue
from gpuplan.catalog.terms.billing_minimums import billing_minimums

CATALOGUE = embedded_catalogue()


def test_bare_metal_of_oracle_is_billed_for_an_hour_and_its_virtual_machines_for_a_minute() -> None:
    bare, virtual = (
        CATALOGUE.billing_of("oci", name) for name in ("BM.GPU.H100.8", "VM.GPU.A10.1")
    )
    assert bare is not None and virtual is not None
    assert (bare.billing_increment_s, bare.minimum_s) == (1, 3600)
    assert (virtual.billing_increment_s, virtual.minimum_s) == (1, 60)


def test_others_bill_as_their_seller_does() -> None:
    assert CATALOGUE.billing_of("aws", "p5.48xlarge") == CATALOGUE.providers["aws"]
    assert CATALOGUE.billing_of("nobody", "BM.GPU.H100.8") is None


def test_every_row_is_of_a_known_seller_and_longer_than_its_own_minimum() -> None:
    for one in billing_minimums(CURATED_DIR):
        assert one.provider in CATALOGUE.providers
        assert one.minimum_s > (CATALOGUE.providers[one.provider].minimum_s or 0)
