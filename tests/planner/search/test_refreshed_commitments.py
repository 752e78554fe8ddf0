"""A commitment that the user refreshed is a price of a plan, as those of the package are."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.types import CommitmentRow
from gpuplan.planner.search.machines.ways_to_buy import for_a_term

PLACE = ("aws", "us-east-1", "p5.48xlarge")


def test_a_term_is_offered_where_only_the_refresh_has_a_price() -> None:
    package = embedded_catalogue()
    offers = [o for o in package.offers if (o.provider, o.region, o.instance_type) == PLACE]
    row = CommitmentRow(
        provider=PLACE[0],
        region=PLACE[1],
        instance_type=PLACE[2],
        term_years=1,
        usd_per_hour=Decimal("41.5"),
        price_date=date(2026, 11, 25),
        source="a test",
    )
    mine: Mapping[tuple[str, str, str], tuple[CommitmentRow, ...]] = {PLACE: (row,)}
    assert for_a_term(offers, "committed-1y", package) == []
    [way] = for_a_term(offers, "committed-1y", replace(package, commitments=mine))
    assert (way.purchase, way.usd_per_hour) == ("committed", Decimal("41.5"))
    assert for_a_term(offers, "committed-3y", replace(package, commitments=mine)) == []
