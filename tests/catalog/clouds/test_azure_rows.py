"""Every trap of Azure's price list is a fixture here, and a rule with a name."""

from datetime import date
from decimal import Decimal

import pytest
from clouds.azure import meter

from gpuplan.catalog.clouds.azure_rows import read_retail_prices
from gpuplan.catalog.clouds.interface import PriceRow, Refused
from gpuplan.catalog.types import CommitmentRow

TODAY = date(2026, 11, 23)


def test_spot_and_on_demand_are_told_apart() -> None:
    rows = [meter(98.32), meter(21.5, skuName="ND96isr H100 v5 Spot")]
    reads = list(read_retail_prices(rows, today=TODAY))
    assert [one.purchase for one in reads if isinstance(one, PriceRow)] == ["on-demand", "spot"]


# The price is of the whole term, though the unit is an hour:
# https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
@pytest.mark.parametrize(
    ("term", "usd", "years", "usd_per_hour"),
    [("1 Year", 551_880.0, 1, "63"), ("3 Years", 1_051_200.0, 3, "40")],
)
def test_a_reservation_is_its_whole_price_over_its_hours(term, usd, years, usd_per_hour) -> None:
    [read] = read_retail_prices([meter(usd, type="Reservation", reservationTerm=term)], today=TODAY)
    assert isinstance(read, CommitmentRow)
    assert (read.term_years, read.usd_per_hour) == (years, Decimal(usd_per_hour))


def test_a_price_that_is_a_float_is_exact() -> None:
    [read] = read_retail_prices([meter(3.673)], today=TODAY)
    assert isinstance(read, PriceRow)
    assert read.usd_per_hour == Decimal("3.673")


# https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
@pytest.mark.parametrize(
    ("usd", "changes", "rule"),
    [
        (0.0, {}, "azure-placeholder"),
        (30.0, {"skuName": "ND96isr H100 v5 Low Priority"}, "azure-low-priority"),
        (60.0, {"type": "DevTestConsumption"}, "azure-price-type"),
        (900_000.0, {"type": "Reservation"}, "azure-reservation-term"),
        (
            900_000.0,
            {"type": "Reservation", "reservationTerm": "5 Years"},
            "azure-reservation-term",
        ),
        (0.0, {"type": "Reservation", "reservationTerm": "1 Year"}, "azure-placeholder"),
        (102.7, {"productName": "Virtual Machines NDsr H100 v5 Series Windows"}, "azure-windows"),
        (98.32, {"tierMinimumUnits": 100.0}, "azure-tier"),
        (0.0, {"currencyCode": "EUR"}, "currency"),
        (98.32, {"unitOfMeasure": "1/Month"}, "azure-unit"),
        (98.32, {"serviceName": "Cloud Services"}, "azure-other-service"),
        (98.32, {"productName": "NDsr H100 v5 Series Cloud Services"}, "azure-other-service"),
        (98.32, {"productName": "ND H100 v5 Series Dedicated Host"}, "azure-other-service"),
        (float("nan"), {}, "not-a-number"),
        (98.32, {"armRegionName": ""}, "no-place"),
        (98.32, {"armSkuName": ""}, "no-place"),
    ],
)
def test_a_row_of_something_else_is_refused_by_name(usd, changes, rule) -> None:
    [read] = read_retail_prices([meter(usd, **changes)], today=TODAY)
    assert isinstance(read, Refused)
    assert read.rule == rule


def test_a_tier_that_begins_at_0_is_written_as_a_float_and_taken() -> None:
    [read] = read_retail_prices([meter(98.32, tierMinimumUnits=0.0)], today=TODAY)
    assert isinstance(read, PriceRow)
