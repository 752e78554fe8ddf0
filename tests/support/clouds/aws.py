"""AWS as boto3 sees it: EC2, the price list and service quotas of a small world."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from gpuplan.catalog.clouds.aws.session import reading_session

from .server import Answer, Request, as_json

PAGE = 2
"""Items on a page, so that everything takes several."""
CANARY_KEY = "AKIACANARY0000000KEY"
CANARY_SECRET = "canarysecretcanarysecretcanarysecret0000"


def session() -> Any:
    return reading_session(
        aws_access_key_id=CANARY_KEY, aws_secret_access_key=CANARY_SECRET, region_name="us-east-1"
    )


def price_row(instance_type: str, region: str, usd: str, **attributes: str | None) -> str:
    """A row of the price list, in the documented shape.

    https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-an-offer.html
    """
    sku = f"{instance_type}-{region}-{usd}".upper()
    shown = {
        "instanceType": instance_type,
        "regionCode": region,
        "location": "US East (N. Virginia)",
        "locationType": "AWS Region",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "usagetype": f"BoxUsage:{instance_type}",
        **attributes,
    }
    return json.dumps(
        {
            "product": {
                "productFamily": "Compute Instance",
                "attributes": {name: one for name, one in shown.items() if one is not None},
                "sku": sku,
            },
            "serviceCode": "AmazonEC2",
            "terms": {
                "OnDemand": {
                    f"{sku}.JRTCKXETXF": {
                        "offerTermCode": "JRTCKXETXF",
                        "effectiveDate": "2026-11-01T00:00:00Z",
                        "priceDimensions": {
                            f"{sku}.JRTCKXETXF.6YS6EN2CT7": {
                                "unit": "Hrs",
                                "pricePerUnit": {"USD": usd},
                            }
                        },
                    }
                }
            },
        }
    )


def rate(
    instance_type: str,
    region: str,
    usd: str,
    *,
    years: int = 1,
    plan: str = "EC2Instance",
    offering: dict[str, Any] | None = None,
    properties: dict[str, str] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A rate of a Savings Plan, in the documented shape.

    https://docs.aws.amazon.com/savingsplans/latest/APIReference/API_SavingsPlanOfferingRate.html
    """
    shown = {
        "region": region,
        "instanceType": instance_type,
        "instanceFamily": instance_type.split(".")[0],
        "productDescription": "Linux/UNIX",
        "tenancy": "shared",
        **(properties or {}),
    }
    return {
        "savingsPlanOffering": {
            "offeringId": "a1b2c3d4-5678-90ab-cdef-000000000001",
            "paymentOption": "No Upfront",
            "planType": plan,
            "durationSeconds": years * 31_536_000,
            "currency": "USD",
            "planDescription": f"{years} year No Upfront {plan} Savings Plan",
            **(offering or {}),
        },
        "rate": usd,
        "unit": "Hrs",
        "productType": "EC2",
        "serviceCode": "AmazonEC2",
        "usageType": f"BoxUsage:{instance_type}",
        "operation": "RunInstances",
        "properties": [{"name": name, "value": one} for name, one in shown.items()],
        **changes,
    }


class AwsWorld:
    """What the fake AWS has; tests change it."""

    def __init__(self) -> None:
        self.regions = {"us-east-1": "opt-in-not-required", "us-west-2": "opt-in-not-required"}
        self.prices = [price_row("p5.48xlarge", region, "55.0400000000") for region in self.regions]
        self.rates = [
            rate("p5.48xlarge", "us-east-1", usd, years=years, plan=plan)
            for plan, years, usd in (
                ("EC2Instance", 1, "41.5"),
                ("EC2Instance", 3, "27.25"),
                ("Compute", 3, "31.0"),
            )
        ]
        self.spot = {"us-east-1": [("us-east-1a", "21.5"), ("us-east-1b", "18.25")]}
        self.types = ["p5.48xlarge", "p9.48xlarge"]
        self.zones = {"us-east-1": ["us-east-1a", "us-east-1b"], "us-west-2": []}
        self.quotas = {"us-east-1": {"L-417A185B": 768.0}}
        self.default_quotas = {"L-417A185B": 0.0, "L-C4BD4855": 0.0}
        self.running: dict[str, list[dict[str, Any]]] = {"us-east-1": [_machine("p5.48xlarge", 96)]}
        self.scores = {"us-east-1": 7, "us-west-2": 2}
        self.blocks: dict[str, list[dict[str, Any]]] = {}
        self.held: dict[str, list[dict[str, Any]]] = {}
        self.faults: Callable[[str, str, str], Answer | None] = lambda *_call: None
        """Of service, operation and region: what is answered in place of the truth."""
        self.calls: list[tuple[str, str, str]] = []

    def __call__(self, request: Request) -> Answer:
        scope = request.headers["Authorization"].split("Credential=")[1].split(",")[0].split("/")
        region, service = scope[2], scope[3]
        target = request.headers.get("X-Amz-Target")
        is_json = target is not None or service == "savingsplans"
        if is_json:
            operation = request.path.strip("/") if target is None else target.split(".")[-1]
            asked = json.loads(request.body)
        else:
            asked = dict(parse_qsl(request.body.decode()))
            operation = asked["Action"]
        self.calls.append((service, operation, region))
        fault = self.faults(service, operation, region)
        if fault is not None:
            return fault
        answer = getattr(self, f"_{operation}")(asked, region)
        return as_json(answer) if is_json else _xml(operation, answer)

    def _GetProducts(self, asked: dict[str, Any], _region: str) -> dict[str, Any]:
        wanted = {one["Field"]: one["Value"] for one in asked["Filters"]}
        rows = [row for row in self.prices if wanted["instanceType"] in row]
        return _page("PriceList", rows, asked)

    def _DescribeRegions(self, _asked: dict[str, Any], _region: str) -> dict[str, Any]:
        found = [{"RegionName": name, "OptInStatus": opt} for name, opt in self.regions.items()]
        return {"Regions": found}

    def _DescribeSpotPriceHistory(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        rows = [
            {
                "AvailabilityZone": zone,
                "InstanceType": "p5.48xlarge",
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": usd,
                "Timestamp": datetime(2026, 11, 23, tzinfo=UTC),
            }
            for zone, usd in self.spot.get(region, [])
        ]
        return _page("SpotPriceHistory", rows, asked)

    def _DescribeInstanceTypes(self, asked: dict[str, Any], _region: str) -> dict[str, Any]:
        rows = [
            {"InstanceType": name, "GpuInfo": {"TotalGpuMemoryInMiB": 655360}}
            for name in self.types
        ]
        return _page("InstanceTypes", rows, asked)

    def _DescribeInstanceTypeOfferings(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        rows = [
            {"InstanceType": "p5.48xlarge", "LocationType": "availability-zone", "Location": zone}
            for zone in self.zones.get(region, [])
        ]
        return _page("InstanceTypeOfferings", rows, asked)

    def _GetSpotPlacementScores(self, asked: dict[str, Any], _region: str) -> dict[str, Any]:
        named = {one for key, one in asked.items() if key.startswith("RegionName")}
        rows = [
            {"Region": region, "Score": score}
            for region, score in self.scores.items()
            if region in named
        ]
        return _page("SpotPlacementScores", rows, asked)

    def _DescribeCapacityBlockOfferings(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        return _page("CapacityBlockOfferings", self.blocks.get(region, []), asked)

    def _DescribeCapacityReservations(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        return _page("CapacityReservations", self.held.get(region, []), asked)

    def _DescribeSavingsPlansOfferingRates(
        self, asked: dict[str, Any], _region: str
    ) -> dict[str, Any]:
        wanted = {one["name"]: one["values"] for one in asked["filters"]}
        found = [
            rate
            for rate in self.rates
            if all(
                one["value"] in wanted.get(one["name"], [one["value"]])
                for one in rate["properties"]
            )
        ]
        page = _page("searchResults", found, {"NextToken": asked.get("nextToken")})
        return {name[0].lower() + name[1:]: one for name, one in page.items()}

    def _DescribeInstances(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        groups = [{"Instances": [one]} for one in self.running.get(region, [])]
        return _page("Reservations", groups, asked)

    def _ListServiceQuotas(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        return _page("Quotas", _quotas(self.quotas.get(region, {})), asked)

    def _ListAWSDefaultServiceQuotas(self, asked: dict[str, Any], _region: str) -> dict[str, Any]:
        return _page("Quotas", _quotas(self.default_quotas), asked)


def aws_error(code: str, status: int, *, is_json: bool = False) -> Answer:
    """A refusal whose message holds the caller's key, as no message should."""
    said = f"not for {CANARY_KEY} {CANARY_SECRET}"
    if is_json:
        return as_json({"__type": code, "message": said}, status)
    text = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{said}</Message></Error></Errors>"
        "<RequestID>1</RequestID></Response>"
    )
    return Answer(text.encode(), status, "text/xml")


def _machine(instance_type: str, cores: int, **more: Any) -> dict[str, Any]:
    cpu = {"CoreCount": cores, "ThreadsPerCore": 2}
    return {"InstanceType": instance_type, "CpuOptions": cpu, **more}


def _quotas(limits: dict[str, float]) -> list[dict[str, Any]]:
    others = [{"QuotaCode": f"L-{number:08X}", "Value": 5.0} for number in range(3)]
    return [*others, *({"QuotaCode": code, "Value": limit} for code, limit in limits.items())]


def _page(name: str, rows: list[Any], asked: dict[str, Any]) -> dict[str, Any]:
    start = int(asked.get("NextToken") or 0)
    more = {"NextToken": str(start + PAGE)} if start + PAGE < len(rows) else {}
    return {name: rows[start : start + PAGE], **more}


@cache
def _ec2_model() -> Any:
    made = import_module("boto3").client
    client = made("ec2", "us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
    return client.meta.service_model


def _xml(operation: str, value: dict[str, Any]) -> Answer:
    shape = _ec2_model().operation_model(operation).output_shape
    text = f"<{operation}Response>{_element(shape, value)}</{operation}Response>"
    return Answer(text.encode(), kind="text/xml")


def _element(shape: Any, value: Any) -> str:
    if shape.type_name == "structure":
        parts = []
        for name, inner in value.items():
            member = shape.members[name]
            tag = member.serialization.get("name", name)
            parts.append(f"<{tag}>{_element(member, inner)}</{tag}>")
        return "".join(parts)
    if shape.type_name == "list":
        return "".join(f"<item>{_element(shape.member, one)}</item>" for one in value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return escape(str(value))
