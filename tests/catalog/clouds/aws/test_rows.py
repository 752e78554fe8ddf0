"""Every trap of AWS's price list is a fixture here, and a rule with a name.

Beside a fixture is the address of the report that it follows. Where there is none, no report was
found by a search of public threads (2026-11-26), and the row is made up in the documented shape.
"""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from clouds.aws import price_row

from gpuplan.catalog.clouds.aws.quota import families_of, quota_of, used_vcpus
from gpuplan.catalog.clouds.aws.rows import read_price_list, read_spot_history
from gpuplan.catalog.clouds.interface import PriceRow, Refused
from gpuplan.catalog.embedded import embedded_catalogue

TODAY = date(2026, 11, 23)


def rule_of(item: str) -> str:
    [read] = read_price_list([item], today=TODAY)
    assert isinstance(read, Refused)
    return read.rule


def changed(item: str, **dimension) -> str:
    row = json.loads(item)
    [term] = row["terms"]["OnDemand"].values()
    [one] = term["priceDimensions"].values()
    one.update(dimension)
    return json.dumps(row)


def test_a_plain_row_is_a_price() -> None:
    [read] = read_price_list([price_row("p5.48xlarge", "us-east-1", "55.0400000000")], today=TODAY)
    assert isinstance(read, PriceRow)
    assert (read.region, read.usd_per_hour) == ("us-east-1", Decimal("55.04"))


@pytest.mark.parametrize(
    ("attributes", "rule"),
    [
        # Reservations are listed as machines at $0:
        # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-pricing-billing.html
        # https://github.com/opencost/opencost/pull/694
        # https://github.com/keikoproj/minion-manager/issues/10
        ({"capacitystatus": "AllocatedCapacityReservation"}, "aws-capacity-status"),
        # https://github.com/hashicorp/terraform-provider-aws/pull/12122
        ({"capacitystatus": "UnusedCapacityReservation"}, "aws-capacity-status"),
        # https://github.com/aws/aws-sdk-js/issues/1819 (at the price of Linux: bring a licence)
        ({"operatingSystem": "Windows"}, "aws-operating-system"),
        # https://github.com/getstrake/aws-pricing-sheets-addon/issues/16
        ({"operatingSystem": "RHEL"}, "aws-operating-system"),
        # https://github.com/odg0318/aws-ec2-price/pull/2
        ({"preInstalledSw": "SQL Ent"}, "aws-pre-installed-software"),
        ({"tenancy": "Dedicated"}, "aws-tenancy"),
        # https://github.com/nrollr/instancetyp.es/issues/12
        ({"tenancy": "Host"}, "aws-tenancy"),
        # https://github.com/vantage-sh/ec2instances.info/issues/573: of Los Angeles, for Oregon
        # https://github.com/aws-cloudformation/cfn-lint/pull/1817
        ({"locationType": "AWS Local Zone"}, "aws-not-a-region"),
        ({"regionCode": None, "location": "US West (Los Angeles)"}, "aws-region-name"),
        # https://github.com/dstackai/gpuhunt/pull/36
        ({"marketoption": "CapacityBlock"}, "aws-market-option"),
        # https://github.com/skypilot-org/skypilot/issues/4657: an operating system for $0.336
        (
            {"marketoption": "CapacityBlock", "operatingSystem": "Ubuntu Pro"},
            "aws-operating-system",
        ),
        # https://github.com/banzaicloud/cloudinfo/issues/367
        # https://github.com/aws-samples/aws-parallelcluster-monitoring/issues/11
        ({"regionCode": None, "location": "EU (Ireland)"}, "aws-region-name"),
    ],
)
def test_a_row_of_something_else_is_refused_by_name(attributes, rule) -> None:
    assert rule_of(price_row("p5.48xlarge", "us-east-1", "0.0000000000", **attributes)) == rule


def test_a_type_sold_in_blocks_alone_has_no_price() -> None:
    # https://github.com/vantage-sh/ec2instances.info/issues/903
    item = json.loads(price_row("p5e.48xlarge", "us-east-1", "0"))
    item["terms"] = {"CapacityBlock": {}}
    assert rule_of(json.dumps(item)) == "aws-no-on-demand-term"


def test_other_units_currencies_and_texts_are_no_price() -> None:
    item = price_row("p5.48xlarge", "us-east-1", "55.04")
    assert rule_of(changed(item, unit="Quantity")) == "aws-unit"
    # https://github.com/opencost/opencost/pull/773
    assert rule_of(changed(item, pricePerUnit={"CNY": "398"})) == "currency"
    assert rule_of(changed(item, pricePerUnit={"USD": "NaN"})) == "not-a-number"
    assert rule_of(item[:-20]) == "not-json"


def spot(usd: str, zone: str = "us-east-1a", hour: int = 0, **changes) -> dict[str, object]:
    given = {
        "AvailabilityZone": zone,
        "InstanceType": "p5.48xlarge",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": usd,
        "Timestamp": datetime(2026, 11, 23, hour, tzinfo=UTC),
    }
    return given | changes


def test_spot_is_the_newest_price_of_the_cheapest_zone() -> None:
    # Of Windows for Linux: https://github.com/mozilla-releng/build-cloud-tools/pull/231
    entries = [
        spot("18.0", hour=3),
        spot("9.0", hour=1),
        spot("17.0", "us-east-1b", 2),
        spot("3.0", "us-east-1c", ProductDescription="Windows"),
        spot("NaN", "us-east-1d"),
    ]
    reads = list(read_spot_history(entries, region="us-east-1", today=TODAY))
    [price] = [one for one in reads if isinstance(one, PriceRow)]
    assert price.usd_per_hour == Decimal(17)
    assert price.note == "spot in us-east-1b; up to $18 in other zones"
    rules = sorted(one.rule for one in reads if isinstance(one, Refused))
    assert rules == ["aws-operating-system", "not-a-number"]


def test_every_instance_type_of_aws_has_an_on_demand_quota() -> None:
    instances = embedded_catalogue().instances.values()
    types = [one.instance_type for one in instances if one.provider == "aws" and not one.is_cpu]
    assert [name for name in types if quota_of(name, "on-demand") is None] == []
    assert quota_of("p6-b200.48xlarge", "spot") is None  # Not stated anywhere that was read.


def test_used_vcpus_are_those_the_quota_counts() -> None:
    def machine(name: str, **more) -> dict[str, object]:
        return {"InstanceType": name, "CpuOptions": {"CoreCount": 4, "ThreadsPerCore": 2}, **more}

    running = [
        machine("p4d.24xlarge"),
        machine("p5.48xlarge", InstanceLifecycle="spot"),
        machine("p5.48xlarge", InstanceLifecycle="capacity-block"),
        machine("g6.xlarge"),
    ]
    on_demand = families_of("L-417A185B", "on-demand")
    assert used_vcpus(running, on_demand, "on-demand") == 8
    assert used_vcpus(running, families_of("L-C4BD4855", "spot"), "spot") == 8
