"""What a controller of SkyPilot's managed jobs costs, where that is known."""

from decimal import Decimal

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.controllers import (
    controller_machine,
    dearest_controller_usd_per_hour,
    read_controllers,
)

MACHINES = {"aws": "m6i.xlarge", "gcp": "n2-standard-4", "azure": "Standard_D4s_v5"}


def test_every_row_is_valid_the_only_one_of_its_region_and_of_a_region_that_is_known() -> None:
    rows = read_controllers(validate=True)
    assert len({(row.provider, row.region) for row in rows}) == len(rows) >= 80
    catalogue = load_catalogue()
    sold = {(o.provider, o.region) for o in (*catalogue.offers, *catalogue.cpu_offers)}
    for row in rows:
        assert MACHINES[row.provider] == row.instance_type
        assert (row.provider, row.region) in sold
        assert Decimal("0.15") < row.usd_per_hour < Decimal("0.5"), row.region
        assert "@" in row.source


@pytest.mark.parametrize(
    ("place", "usd"),
    [
        (("aws", "us-east-1"), "0.192"),
        (("gcp", "us-central1"), "0.194236"),
        (("azure", "eastus"), "0.192"),
    ],
)
def test_a_price_is_that_of_its_region(place: tuple[str, str], usd: str) -> None:
    row = controller_machine(*place)
    assert row is not None and row.usd_per_hour == Decimal(usd)


def test_where_no_price_is_known_there_is_no_row() -> None:
    assert controller_machine("aws", "eu-west-1") is None
    assert controller_machine("lambda", "global") is None


def test_the_dearest_is_a_price_of_the_table() -> None:
    assert dearest_controller_usd_per_hour() == max(r.usd_per_hour for r in read_controllers())
