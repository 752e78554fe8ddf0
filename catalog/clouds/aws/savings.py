"""Rates of AWS's Savings Plans → prices of commitments, or the named rule that refuses them. Pure.

The shape of a rate:
https://docs.aws.amazon.com/savingsplans/latest/APIReference/API_SavingsPlanOfferingRate.html
(2026-11-25).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from ...text.money_cells import decimal_of
from ...types import CommitmentRow
from ..interface import Refused
from .rows import PROVIDER, SPOT_PRODUCT, UNIT_RULE

PLANS = {"EC2Instance": "EC2 Instance Savings Plan", "Compute": "Compute Savings Plan"}
"""Plans that cover machines by the hour: one family in one region, or any machine anywhere."""
PAYMENT = "No Upfront"
"""Paid month by month, as all prices of commitments here are."""
TENANCY = "shared"
YEARS_BY_SECONDS = {365 * 86_400: 1, 3 * 365 * 86_400: 3}
"""`durationSeconds` of an offering → years of its term."""
FILTERS = {"productDescription": SPOT_PRODUCT, "tenancy": TENANCY}
PLAN_RULE, PAYMENT_RULE, TERM_RULE = "aws-savings-plan", "aws-savings-payment", "aws-savings-term"
USED = "BoxUsage:"
"""In the usage type of a machine that runs; that of a reservation which nobody uses is another."""


def rates_request(region: str, instance_types: Iterable[str]) -> dict[str, Any]:
    """Return what `describe_savings_plans_offering_rates` is asked for one region."""
    wanted = {"region": [region], "instanceType": sorted(instance_types)}
    wanted |= {name: [value] for name, value in FILTERS.items()}
    return {
        "savingsPlanPaymentOptions": [PAYMENT],
        "savingsPlanTypes": sorted(PLANS),
        "products": ["EC2"],
        "serviceCodes": ["AmazonEC2"],
        "filters": [{"name": name, "values": values} for name, values in wanted.items()],
    }


def read_rates(
    rates: Iterable[Mapping[str, Any]], *, today: date
) -> Iterator[CommitmentRow | Refused]:
    """Yield the price of each rate, or why it is not taken."""
    for rate in rates:
        yield _row_of(rate, today)


def _row_of(rate: Mapping[str, Any], today: date) -> CommitmentRow | Refused:
    offering: Mapping[str, Any] = rate.get("savingsPlanOffering", {})
    properties = {one.get("name"): one.get("value") for one in rate.get("properties", ())}
    region, instance_type = properties.get("region"), str(properties.get("instanceType") or "?")

    def refused(rule: str, why: str) -> Refused:
        return Refused(rule=rule, provider=PROVIDER, region=region, what=instance_type, why=why)

    why_not = _not_wanted(rate, offering, properties)
    if why_not is not None:
        return refused(*why_not)
    if not region or instance_type == "?":
        return refused("no-place", "a rate without a region or an instance type")
    usd = decimal_of(rate.get("rate"))
    if usd is None:
        return refused("not-a-number", f"the rate is {rate.get('rate')!r}")
    return CommitmentRow(
        provider=PROVIDER,
        region=region,
        instance_type=instance_type,
        term_years=YEARS_BY_SECONDS[offering["durationSeconds"]],
        usd_per_hour=usd,
        price_date=today,
        source=f"AWS {PLANS[offering['planType']]}, no upfront"
        " (savingsplans:DescribeSavingsPlansOfferingRates)",
    )


def _not_wanted(
    rate: Mapping[str, Any], offering: Mapping[str, Any], properties: Mapping[Any, Any]
) -> tuple[str, str] | None:
    """Return the rule that refuses a rate before its price is looked at, and why."""
    plan, payment = offering.get("planType"), offering.get("paymentOption")
    product, tenancy = properties.get("productDescription"), properties.get("tenancy")
    usage = str(rate.get("usageType"))
    if plan not in PLANS or rate.get("productType") != "EC2":
        return PLAN_RULE, f"a {plan} plan for {rate.get('productType')}"
    if payment != PAYMENT:
        # The rate of a plan that is paid upfront is of the hours that follow.
        return PAYMENT_RULE, f"paid {payment}, not {PAYMENT}"
    if offering.get("durationSeconds") not in YEARS_BY_SECONDS:
        return TERM_RULE, f"for {offering.get('durationSeconds')} s, not for 1 or 3 years"
    if offering.get("currency") != "USD":
        return "currency", f"the currency is {offering.get('currency') or 'not stated'}"
    if product != SPOT_PRODUCT:
        return "aws-operating-system", f"for {product}, not {SPOT_PRODUCT}"
    if tenancy != TENANCY:
        return "aws-tenancy", f"tenancy is {tenancy}, not {TENANCY}"
    if USED not in usage:
        return "aws-capacity-status", f"usage is {usage}, not {USED}"
    if rate.get("unit") != "Hrs":
        return UNIT_RULE, f"the unit is {rate.get('unit')!r}, not hours"
    return None
