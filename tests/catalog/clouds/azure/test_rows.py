"""Every trap of Azure's price list is a fixture here, and a rule with a name.

Beside a fixture is the address of the report that it follows. Where there is none, no report was
found by a search of public threads (2026-11-26), and the row is made up in the documented shape.
"""

from datetime import date
from decimal import Decimal

import pytest
from clouds.azure import meter

from gpuplan.catalog.clouds.azure.rows import read_retail_prices
from gpuplan.catalog.clouds.interface import PriceRow, Refused
from gpuplan.catalog.types import CommitmentRow

TODAY = date(2026, 11, 23)


def test_spot_and_on_demand_are_told_apart() -> None:
    rows = [meter(98.32), meter(21.5, skuName="ND96isr H100 v5 Spot")]
    reads = list(read_retail_prices(rows, today=TODAY))
    assert [one.purchase for one in reads if isinstance(one, PriceRow)] == ["on-demand", "spot"]


# The price is of the whole term, though the unit is an hour:
# https://github.com/ahmadabdalla/azure-cost-calculator/issues/239
# https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
@pytest.mark.parametrize(
    ("term", "usd", "years", "usd_per_hour"),
    [("1 Year", 551_880.0, 1, "63"), ("3 Years", 1_051_200.0, 3, "40")],
)
def test_a_reservation_is_its_whole_price_over_its_hours(term, usd, years, usd_per_hour) -> None:
    [read] = read_retail_prices([meter(usd, type="Reservation", reservationTerm=term)], today=TODAY)
    assert isinstance(read, CommitmentRow)
    assert (read.term_years, read.usd_per_hour) == (years, Decimal(usd_per_hour))


def plan(term: str, usd: float) -> dict[str, object]:
    """A rate of a savings plan, as it stands in the row of the machine.

    https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
    """
    return {"unitPrice": usd, "retailPrice": usd, "term": term}


def test_a_rows_savings_plans_are_commitments_of_the_same_machine() -> None:
    rows = [meter(98.32, savingsPlan=[plan("3 Years", 47.5), plan("1 Year", 67.25)])]
    on_demand, *plans = read_retail_prices(rows, today=TODAY)
    assert isinstance(on_demand, PriceRow) and on_demand.usd_per_hour == Decimal("98.32")
    assert [(one.term_years, one.usd_per_hour) for one in plans] == [  # type: ignore[union-attr]
        (3, Decimal("47.5")),
        (1, Decimal("67.25")),
    ]
    assert {one.source for one in plans} != {on_demand.source}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("plans", "rule"),
    [
        ([plan("5 Years", 40.0)], "azure-savings-plan"),
        ([{"retailPrice": 40.0}], "azure-savings-plan"),
        (["1 Year"], "azure-savings-plan"),
        ([plan("1 Year", 0.0)], "azure-placeholder"),
        ([plan("1 Year", float("nan"))], "not-a-number"),
        ([{"term": "1 Year"}], "not-a-number"),
    ],
)
def test_a_rate_that_is_none_is_refused_and_the_machine_is_not(plans, rule) -> None:
    on_demand, read = read_retail_prices([meter(98.32, savingsPlan=plans)], today=TODAY)
    assert isinstance(on_demand, PriceRow) and isinstance(read, Refused)
    assert (read.rule, read.region, read.what) == (rule, "eastus", "Standard_ND96isr_H100_v5")


def test_spot_and_a_refused_row_have_no_savings_plan() -> None:
    plans = [plan("1 Year", 10.0)]
    spot = meter(21.5, skuName="ND96isr H100 v5 Spot", savingsPlan=plans)
    windows = meter(102.7, productName="Virtual Machines NDsr H100 v5 Windows", savingsPlan=plans)
    reads = list(read_retail_prices([spot, windows, meter(98.32, savingsPlan=None)], today=TODAY))
    assert not any(isinstance(one, CommitmentRow) for one in reads)


def test_a_price_that_is_a_float_is_exact() -> None:
    [read] = read_retail_prices([meter(3.673)], today=TODAY)
    assert isinstance(read, PriceRow)
    assert read.usd_per_hour == Decimal("3.673")


# https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
@pytest.mark.parametrize(
    ("usd", "changes", "rule"),
    [
        # https://github.com/mattrobinsonsre/terrapod/issues/931
        (0.0, {}, "azure-placeholder"),
        # https://github.com/opencost/opencost/pull/3531
        # https://github.com/ahmadabdalla/azure-cost-calculator/issues/531
        (30.0, {"skuName": "ND96isr H100 v5 Low Priority"}, "azure-low-priority"),
        # https://github.com/flexera-public/policy_templates/pull/1334
        (60.0, {"type": "DevTestConsumption"}, "azure-price-type"),
        (900_000.0, {"type": "Reservation"}, "azure-reservation-term"),
        (
            900_000.0,
            {"type": "Reservation", "reservationTerm": "5 Years"},
            "azure-reservation-term",
        ),
        (0.0, {"type": "Reservation", "reservationTerm": "1 Year"}, "azure-placeholder"),
        # https://github.com/mattrobinsonsre/terrapod/issues/989
        (102.7, {"productName": "Virtual Machines NDsr H100 v5 Series Windows"}, "azure-windows"),
        (98.32, {"tierMinimumUnits": 100.0}, "azure-tier"),
        # https://github.com/ahmadabdalla/azure-cost-calculator/issues/1043
        (0.0, {"currencyCode": "EUR"}, "currency"),
        (98.32, {"unitOfMeasure": "1/Month"}, "azure-unit"),
        # https://github.com/mattrobinsonsre/terrapod/pull/932
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
    # https://github.com/mattrobinsonsre/terrapod/issues/931
    [read] = read_retail_prices([meter(98.32, tierMinimumUnits=0.0)], today=TODAY)
    assert isinstance(read, PriceRow)
