"""Providers that a project names beside its experiments."""

import pytest

from gpuplan.api.projects.providers import with_known_providers
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from tests.support.projects import make_project


def known(**fields):
    return with_known_providers(make_project(**fields), load_catalogue())


def test_names_are_those_of_the_ledger() -> None:
    found = known(
        funding=[{"name": "credits", "usd": 5, "kind": "credits", "provider": "GCP"}],
        storage=[{"name": "data", "gb": "1", "provider": "AWS", "region": "us-east-1"}],
        egress=[{"name": "out", "gb": "1", "provider": "google", "region": "us-central1"}],
    )
    parts = (found.funding[0], found.storage[0], found.egress[0])
    assert [one.provider for one in parts] == ["gcp", "aws", "gcp"]


@pytest.mark.parametrize(
    "fields",
    [
        {"funding": [{"name": "x", "usd": 5, "kind": "credits", "provider": "gcpp"}]},
        {"storage": [{"name": "x", "gb": "1", "provider": "gcpp"}]},
        {"egress": [{"name": "x", "gb": "1", "provider": "gcpp"}]},
    ],
)
def test_one_that_is_not_there_is_refused(fields: dict) -> None:
    with pytest.raises(UsageError, match="x: There is no provider 'gcpp'. Did you mean gcp?"):
        known(**fields)


def test_data_at_a_price_of_its_own_may_be_anybodys_and_so_may_credits_for_it() -> None:
    found = known(
        storage=[{"name": "x", "gb": "1", "provider": "our cellar", "usd_per_gb_month": "0.01"}],
        funding=[{"name": "y", "usd": 5, "kind": "credits", "provider": "our cellar"}],
    )
    assert found.storage[0].provider == found.funding[0].provider == "our cellar"
