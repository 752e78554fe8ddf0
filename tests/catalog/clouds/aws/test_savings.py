"""Every trap of AWS's Savings Plans is a fixture here, and a rule with a name.

Rows are made up in the documented shape (tests/support/clouds/aws.py), but for those with an
address.
"""

from datetime import date
from decimal import Decimal

import pytest
from clouds.aws import rate

from gpuplan.catalog.clouds.aws.savings import rates_request, read_rates
from gpuplan.catalog.clouds.interface import Refused
from gpuplan.catalog.types import CommitmentRow

TODAY = date(2026, 11, 25)


def read(**changes):
    usd = changes.pop("usd", "41.50000000")
    [found] = read_rates([rate("p5.48xlarge", "us-east-1", usd, **changes)], today=TODAY)
    return found


def test_a_plain_rate_is_the_price_of_a_commitment() -> None:
    found = read(years=3)
    assert isinstance(found, CommitmentRow)
    assert (found.region, found.instance_type, found.term_years) == ("us-east-1", "p5.48xlarge", 3)
    assert found.usd_per_hour == Decimal("41.5") and "EC2 Instance Savings Plan" in found.source


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        # What is paid upfront is in none of these rates:
        # https://docs.aws.amazon.com/savingsplans/latest/userguide/sp-applying.html
        ({"offering": {"paymentOption": "All Upfront"}}, "aws-savings-payment"),
        ({"offering": {"paymentOption": "Partial Upfront"}}, "aws-savings-payment"),
        ({"offering": {"durationSeconds": 2_592_000}}, "aws-savings-term"),
        ({"offering": {"currency": "CNY"}}, "currency"),
        ({"offering": {"currency": None}}, "currency"),
        ({"plan": "SageMaker"}, "aws-savings-plan"),
        ({"productType": "SageMaker"}, "aws-savings-plan"),
        # https://github.com/vantage-sh/ec2instances.info/issues/959
        ({"properties": {"productDescription": "Windows"}}, "aws-operating-system"),
        ({"properties": {"tenancy": "dedicated"}}, "aws-tenancy"),
        ({"usageType": "UnusedBox:p5.48xlarge"}, "aws-capacity-status"),
        ({"unit": "Request"}, "aws-unit"),
        ({"properties": {"region": ""}}, "no-place"),
        ({"usd": "NaN"}, "not-a-number"),
        ({"usd": "41,5"}, "not-a-number"),
    ],
)
def test_a_rate_of_something_else_is_refused_by_name(changes, rule) -> None:
    found = read(**changes)
    assert isinstance(found, Refused) and found.rule == rule


def test_a_rate_without_its_offering_is_refused() -> None:
    [found] = read_rates([{"rate": "41.5"}], today=TODAY)
    assert isinstance(found, Refused)


def test_only_the_region_and_what_is_paid_monthly_is_asked_for() -> None:
    request = rates_request("us-east-1", {"p5.48xlarge", "p4d.24xlarge"})
    asked = {one["name"]: one["values"] for one in request["filters"]}
    assert asked["region"] == ["us-east-1"]
    assert asked["instanceType"] == ["p4d.24xlarge", "p5.48xlarge"]
    assert request["savingsPlanPaymentOptions"] == ["No Upfront"]
