"""AWS, asked through boto3, with read-only requests.

Price list, spot history, Savings Plans, zones, quotas, capacity blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from ...types import CommitmentRow
from ..asking import Patience, ask_everywhere
from ..interface import (
    Answers,
    Asked,
    Availability,
    CloudError,
    PriceRow,
    Prices,
    Quota,
    Quotas,
    Refused,
    Reservations,
    Tell,
)
from .capacity import AwsCapacity
from .client import AwsClients
from .regions import HOME_REGION, PARTITION_PREFIXES, enabled_regions
from .rows import SPOT_PRODUCT, WANTED_ATTRIBUTES, read_price_list, read_spot_history
from .savings import rates_request, read_rates

ACCELERATOR_TYPES = ("p*", "g*", "trn*", "inf*", "dl*")
"""Instance types with accelerators begin so."""
MOST_RATES = 1000
"""Of Savings Plans on one page, the most that AWS sends."""


class Aws:
    """AWS with the account of one session.

    Args:
        session: A `boto3.Session`; None: the user's own.
        patience: Time-outs and tries.
        endpoint_url: Where all services are, instead of AWS.
    """

    name = "aws"

    def __init__(
        self,
        session: Any = None,
        *,
        patience: Patience | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        self._aws = AwsClients(session, patience=patience, endpoint_url=endpoint_url)
        self._capacity = AwsCapacity(self._aws)

    def offers(self, asked: Asked, tell: Tell) -> Prices:
        """Return prices on demand and committed of all regions, on spot of those enabled."""
        found = Answers()
        today = asked.now.date()
        self._price_list(asked, found, today, tell)
        self._savings_plans(asked, found, today, tell)
        enabled, not_enabled = enabled_regions(self._aws, asked.regions)
        found.unanswered += not_enabled
        spot, silent = ask_everywhere(
            enabled,
            lambda region: self._spot_of(region, asked, today),
            question="spot prices",
            what="spot prices of AWS",
            patience=self._aws.patience,
            tell=tell,
        )
        found.unanswered += silent
        for region, (readings, unmapped) in spot.items():
            found.add(readings)
            found.unmapped |= unmapped
            found.answered.add((region, "spot"))
        return found.prices()

    def _price_list(self, asked: Asked, found: Answers, today: date, tell: Tell) -> None:
        filters = {name: wanted for name, (wanted, _) in WANTED_ATTRIBUTES.items()}

        def of_type(instance_type: str) -> list[PriceRow | Refused]:
            wanted = {**filters, "instanceType": instance_type}
            items = self._aws.items(
                "pricing",
                HOME_REGION,
                "get_products",
                "PriceList",
                ServiceCode="AmazonEC2",
                Filters=[
                    {"Type": "TERM_MATCH", "Field": field, "Value": value}
                    for field, value in wanted.items()
                ],
            )
            return list(read_price_list(items, today=today))

        answers, silent = ask_everywhere(
            asked.instances,
            of_type,
            question="prices",
            what="prices of AWS",
            patience=self._aws.patience,
            tell=tell,
        )
        wanted_regions = set(asked.regions)
        for readings in answers.values():
            found.add(one for one in readings if one.region in wanted_regions or not one.region)
        if silent and not answers:
            raise CloudError(silent[0].why, permission=silent[0].permission)
        # Asked by instance type, not by region: what is missing is of that type everywhere.
        found.unanswered += [
            one.model_copy(update={"region": None, "why": f"{one.region}: {one.why}"})
            for one in silent
        ]
        if not silent:
            found.answered |= {(region, "on-demand") for region in asked.regions}

    def _savings_plans(self, asked: Asked, found: Answers, today: date, tell: Tell) -> None:
        """Add the rates of Savings Plans; without them, prices are answered all the same."""

        def of_region(region: str) -> list[CommitmentRow | Refused]:
            rates = self._aws.items(
                "savingsplans",
                HOME_REGION,
                "describe_savings_plans_offering_rates",
                "searchResults",
                token_key="nextToken",
                maxResults=MOST_RATES,
                **rates_request(region, asked.instances),
            )
            return list(read_rates(rates, today=today))

        answers, silent = ask_everywhere(
            [one for one in asked.regions if not one.startswith(PARTITION_PREFIXES)],
            of_region,
            question="commitments",
            what="Savings Plans of AWS",
            patience=self._aws.patience,
            tell=tell,
        )
        for readings in answers.values():
            found.add(readings)
        reasons = {one.text for one in silent}
        if silent and not answers and len(reasons) == 1:
            silent = [silent[0].model_copy(update={"region": None})]
        found.unanswered += silent

    def _spot_of(
        self, region: str, asked: Asked, today: date
    ) -> tuple[list[PriceRow | Refused], set[str]]:
        entries = self._aws.items(
            "ec2",
            region,
            "describe_spot_price_history",
            "SpotPriceHistory",
            # Filters: a type that the region does not know would be an error as an argument.
            Filters=[
                {"Name": "instance-type", "Values": sorted(asked.instances)},
                {"Name": "product-description", "Values": [SPOT_PRODUCT]},
            ],
            StartTime=asked.now,
        )
        readings = list(read_spot_history(entries, region=region, today=today))
        described = self._aws.items(
            "ec2",
            region,
            "describe_instance_types",
            "InstanceTypes",
            Filters=[{"Name": "instance-type", "Values": list(ACCELERATOR_TYPES)}],
        )
        unmapped = {
            one["InstanceType"]
            for one in described
            if _has_accelerator(one) and one["InstanceType"] not in asked.instances
        }
        return readings, unmapped

    def availability(self, asked: Asked, tell: Tell) -> Availability:
        """Return the zones that offer each type, spot placement scores, and blocks to be had."""
        return self._capacity.availability(asked, tell)

    def quota(self, asked: Asked, tell: Tell) -> Quotas:
        """Return the vCPU quotas that count each type, and what of them is used."""
        return self._capacity.quota(asked, tell)

    def reservations(self, asked: Asked, tell: Tell) -> Reservations:
        """Return the capacity reservations and blocks that the account holds."""
        return self._capacity.reservations(asked, tell)

    def quota_command(self, quota: Quota, wanted: float) -> str:
        """Return the command that asks AWS for a higher quota."""
        return self._capacity.quota_command(quota, wanted)


def _has_accelerator(described: Mapping[str, Any]) -> bool:
    kinds = ("GpuInfo", "NeuronInfo", "InferenceAcceleratorInfo")
    return any(described.get(kind) for kind in kinds)
