"""What AWS has and lets an account use: zones, scores, blocks, quotas, reservations. Read-only."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from ...text.money_cells import decimal_of
from ..asking import ask_everywhere, unanswered_by, undocumented_quotas
from ..interface import (
    Asked,
    Availability,
    Block,
    CloudError,
    Quota,
    Quotas,
    Reservation,
    Reservations,
    Score,
    Tell,
    Unanswered,
    Zones,
)
from .client import AwsClients
from .quota import QuotaName, families_of, quota_of, used_vcpus
from .regions import HOME_REGION, enabled_regions

SCORE_OF = 10.0
SCORE_SOURCE = "EC2 GetSpotPlacementScores, 1 to 10"
LONGEST_LEAD_DAYS = 56
"""A capacity block starts at most eight weeks ahead:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-blocks.html (2026-11-23)."""


class AwsCapacity:
    """The questions about capacity, of one session.

    Args:
        aws: Its clients.
    """

    def __init__(self, aws: AwsClients) -> None:
        self._aws = aws

    def availability(self, asked: Asked, tell: Tell) -> Availability:
        """Return the zones that offer each type, spot placement scores, and blocks to be had."""
        enabled, not_enabled = enabled_regions(self._aws, asked.regions)
        answers, silent = ask_everywhere(
            enabled,
            lambda region: self._zones_of(region, asked),
            question="zones",
            what="zones of AWS",
            patience=self._aws.patience,
            tell=tell,
        )
        unanswered = [*not_enabled, *silent]
        offered = [region for region, zones in answers.items() if any(one.zones for one in zones)]
        scores: list[Score] = []
        if asked.purchase == "spot" and offered:
            try:
                scores = self._scores(offered, asked)
            except CloudError as error:
                unanswered.append(unanswered_by(error, "scores"))
        blocks: dict[str, list[Block]] = {}
        if asked.block_hours is not None:
            blocks, silent = ask_everywhere(
                offered,
                lambda region: self._blocks_of(region, asked),
                question="blocks",
                what="capacity blocks of AWS",
                patience=self._aws.patience,
                tell=tell,
            )
            unanswered += silent
        return Availability(
            zones=tuple(one for zones in answers.values() for one in zones),
            scores=tuple(scores),
            blocks=tuple(one for found in blocks.values() for one in found),
            unanswered=tuple(unanswered),
        )

    def _zones_of(self, region: str, asked: Asked) -> list[Zones]:
        zones: dict[str, set[str]] = defaultdict(set)
        for one in self._aws.items(
            "ec2",
            region,
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": sorted(asked.instances)}],
        ):
            zones[one["InstanceType"]].add(one["Location"])
        return [
            Zones(region=region, instance_type=name, zones=tuple(sorted(zones[name])))
            for name in asked.instances
        ]

    def _scores(self, regions: Iterable[str], asked: Asked) -> list[Score]:
        found = []
        for instance_type in asked.instances:
            for one in self._aws.items(
                "ec2",
                HOME_REGION,
                "get_spot_placement_scores",
                "SpotPlacementScores",
                InstanceTypes=[instance_type],
                TargetCapacity=asked.nodes,
                TargetCapacityUnitType="units",
                SingleAvailabilityZone=False,
                RegionNames=sorted(regions),
            ):
                score = Score(
                    region=one["Region"],
                    zone=None,
                    instance_type=instance_type,
                    score=one["Score"],
                    of=SCORE_OF,
                    source=SCORE_SOURCE,
                )
                found.append(score)
        return found

    def _blocks_of(self, region: str, asked: Asked) -> list[Block]:
        found = []
        for instance_type in asked.instances:
            items = self._aws.items(
                "ec2",
                region,
                "describe_capacity_block_offerings",
                "CapacityBlockOfferings",
                InstanceType=instance_type,
                InstanceCount=asked.nodes,
                CapacityDurationHours=asked.block_hours,
                StartDateRange=asked.now,
                EndDateRange=asked.now + timedelta(days=LONGEST_LEAD_DAYS),
            )
            try:
                offerings = list(items)
            except CloudError as error:
                if error.why.endswith(("InvalidParameterValue", "UnsupportedOperation")):
                    continue  # AWS sells no blocks of this type there.
                raise
            found += [block for one in offerings if (block := _block(region, one)) is not None]
        return sorted(found, key=lambda one: (one.starts, one.upfront_usd))

    def quota(self, asked: Asked, tell: Tell) -> Quotas:
        """Return the vCPU quotas that count each type, and what of them is used."""
        names = {name: quota_of(name, asked.purchase) for name in asked.instances}
        unknown = undocumented_quotas(names, asked.purchase)
        if not any(names.values()):
            return Quotas(unanswered=tuple(unknown))
        enabled, not_enabled = enabled_regions(self._aws, asked.regions)
        answers, silent = ask_everywhere(
            enabled,
            lambda region: self._quotas_of(region, asked, names),
            question="quota",
            what="quotas of AWS",
            patience=self._aws.patience,
            tell=tell,
        )
        quotas = [one for found, _ in answers.values() for one in found]
        more = [one for _, found in answers.values() for one in found]
        return Quotas(quotas=tuple(quotas), unanswered=(*unknown, *not_enabled, *silent, *more))

    def _quotas_of(
        self, region: str, asked: Asked, names: Mapping[str, QuotaName | None]
    ) -> tuple[list[Quota], list[Unanswered]]:
        wanted = {one.code for one in names.values() if one is not None}
        limits = self._limits(region, "list_service_quotas", wanted)
        if wanted - limits.keys():
            # A quota that nobody has changed is listed among the defaults alone.
            limits = {
                **self._limits(region, "list_aws_default_service_quotas", wanted),
                **limits,
            }
        running: list[Mapping[str, Any]] | None = None
        unanswered: list[Unanswered] = []
        try:
            running = self._running(region)
        except CloudError as error:
            unanswered.append(unanswered_by(error, "use", region))
        quotas = []
        for name, instance in asked.instances.items():
            quota = names[name]
            if quota is None:
                continue
            if quota.code not in limits or instance.vcpus is None:
                why = f"no quota {quota.code} is listed"
                if instance.vcpus is None:
                    why = f"the vCPUs of {name} are not known"
                unanswered.append(
                    Unanswered(question="quota", region=region, instance_type=name, why=why)
                )
                continue
            families = families_of(quota.code, asked.purchase)
            used = None if running is None else used_vcpus(running, families, asked.purchase)
            quotas.append(
                Quota(
                    region=region,
                    instance_type=name,
                    purchase=asked.purchase,
                    name=quota.name,
                    code=quota.code,
                    unit="vCPU",
                    limit=limits[quota.code],
                    used=used,
                    per_instance=instance.vcpus,
                )
            )
        return quotas, unanswered

    def _limits(self, region: str, operation: str, codes: set[str]) -> dict[str, float]:
        return {
            one["QuotaCode"]: float(one["Value"])
            for one in self._aws.items(
                "service-quotas", region, operation, "Quotas", ServiceCode="ec2"
            )
            if one["QuotaCode"] in codes and "Value" in one
        }

    def _running(self, region: str) -> list[Mapping[str, Any]]:
        states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        return [
            instance
            for group in self._aws.items(
                "ec2", region, "describe_instances", "Reservations", Filters=states
            )
            for instance in group["Instances"]
        ]

    def reservations(self, asked: Asked, tell: Tell) -> Reservations:
        """Return the capacity reservations and blocks that the account holds."""
        enabled, not_enabled = enabled_regions(self._aws, asked.regions)
        answers, silent = ask_everywhere(
            enabled,
            lambda region: self._held_in(region, asked),
            question="held",
            what="reservations of AWS",
            patience=self._aws.patience,
            tell=tell,
        )
        return Reservations(
            held=tuple(one for held in answers.values() for one in held),
            unanswered=(*not_enabled, *silent),
        )

    def _held_in(self, region: str, asked: Asked) -> list[Reservation]:
        filters = [
            {"Name": "instance-type", "Values": sorted(asked.instances)},
            {"Name": "state", "Values": ["active", "scheduled"]},
        ]
        return [
            Reservation(
                region=region,
                zone=one.get("AvailabilityZone"),
                id=one["CapacityReservationId"],
                instance_type=one["InstanceType"],
                kind=(
                    "capacity block"
                    if one.get("ReservationType") == "capacity-block"
                    else "reservation"
                ),
                instances=one["TotalInstanceCount"],
                free=one.get("AvailableInstanceCount"),
                starts=one.get("StartDate"),
                ends=one.get("EndDate"),
            )
            for one in self._aws.items(
                "ec2",
                region,
                "describe_capacity_reservations",
                "CapacityReservations",
                Filters=filters,
            )
        ]

    def quota_command(self, quota: Quota, wanted: float) -> str:
        """Return the command that asks AWS for a higher quota."""
        return shlex.join(
            [
                *("aws", "service-quotas", "request-service-quota-increase"),
                *("--service-code", "ec2", "--quota-code", quota.code),
                *("--desired-value", f"{wanted:g}", "--region", quota.region),
            ]
        )


def _block(region: str, one: Mapping[str, Any]) -> Block | None:
    """Return an offering as a block; None where its price is not in dollars, or not known."""
    usd = decimal_of(one.get("UpfrontFee"))
    if usd is None or usd <= 0 or one.get("CurrencyCode") != "USD":
        return None
    hours = one.get("CapacityBlockDurationHours")
    if hours is None:
        hours = one["CapacityBlockDurationMinutes"] / 60
    command = [
        *("aws", "ec2", "purchase-capacity-block"),
        *("--capacity-block-offering-id", one["CapacityBlockOfferingId"]),
        *("--instance-platform", "Linux/UNIX", "--region", region),
    ]
    return Block(
        region=region,
        zone=one.get("AvailabilityZone"),
        id=one["CapacityBlockOfferingId"],
        instance_type=one["InstanceType"],
        instances=one["InstanceCount"],
        hours=hours,
        upfront_usd=usd,
        starts=one["StartDate"],
        ends=one["EndDate"],
        command=shlex.join(command),
    )
