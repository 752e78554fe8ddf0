"""Which regions of AWS an account may use."""

from __future__ import annotations

from collections.abc import Iterable

from ..interface import CloudError, Unanswered
from .client import AwsClients

HOME_REGION = "us-east-1"
"""Has the price list, which only three regions serve:
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
(2026-11-23)."""
PARTITION_PREFIXES = ("us-gov-", "cn-", "us-iso", "eu-isoe")
"""Regions of other partitions, which are asked with accounts of their own."""


def enabled_regions(aws: AwsClients, regions: Iterable[str]) -> tuple[list[str], list[Unanswered]]:
    """Return the regions that the account may use, and the others with the reason."""
    known: dict[str, str] = {}
    try:
        answer = aws.call("ec2", HOME_REGION, "describe_regions", key="Regions", AllRegions=True)
        known = {one["RegionName"]: one["OptInStatus"] for one in answer["Regions"]}
    except CloudError as error:
        if error.permission is None:
            raise
    enabled, others = [], []
    for region in regions:
        if region.startswith(PARTITION_PREFIXES):
            why = "another partition of AWS, with accounts of its own"
        elif known.get(region) == "not-opted-in":
            why = "the region is not enabled for this account"
        elif known and region not in known:
            why = "AWS does not list the region"
        else:
            enabled.append(region)
            continue
        others.append(Unanswered(question="zones", region=region, why=why, skipped=True))
    return enabled, others
