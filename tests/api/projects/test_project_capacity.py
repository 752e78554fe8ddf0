"""Prices of commitments in the answer about capacity."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpuplan.api.projects.project_capacity import capacity_of
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.pricebook import Pricebook, Reservation
from gpuplan.planner.budget.schedule import schedule
from tests.support.projects import make_books, make_project, make_run_cost

OFFERED = Reservation(
    provider="aws",
    instance="p4d.24xlarge",
    region="us-east-1",
    usd_per_hour=Decimal("1.2"),
    term_years=Decimal(1),
)


def mixes(tax_percent: Decimal | None, hours: float) -> tuple[float, float, float]:
    """Return dollars with commitments, all on demand, and the share from which one pays."""
    project = make_project(months=12)
    books = make_books(project, a=make_run_cost(hours=hours))
    book = Pricebook(reserved=(OFFERED,), tax_percent=tax_percent)
    catalogue = replace(load_catalogue(), pricebook=book)
    found = capacity_of(project, schedule(books.planned, project), catalogue, have={})
    (one,) = (mix for mix in found.commitments if mix.term_years == 1)
    return float(one.usd), float(one.on_demand_usd), one.break_even_share


@pytest.mark.parametrize(("hours", "usd"), [(1000.0, 2000.0), (8000.0, 8760 * 1.2)])
def test_commitments_and_on_demand_count_the_tax_that_the_report_counts(
    hours: float, usd: float
) -> None:
    net, net_on_demand, share = mixes(None, hours)
    assert (net, net_on_demand, share) == pytest.approx((usd, 2 * hours, 0.6))
    taxed, taxed_on_demand, same = mixes(Decimal(19), hours)
    assert (taxed, taxed_on_demand, same) == pytest.approx((1.19 * usd, 1.19 * 2 * hours, 0.6))
