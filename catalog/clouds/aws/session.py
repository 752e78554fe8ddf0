"""The AWS session of the user, whose clients know the requests of gpuplan and no others.

A client of EC2 is made for every region, and with all its 760 requests each takes a good part of a
refresh's time. That they all read is then no promise: a client cannot ask for anything else.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

READS: dict[str, frozenset[str]] = {
    "ec2": frozenset(
        (
            "DescribeCapacityBlockOfferings",
            "DescribeCapacityReservations",
            "DescribeInstanceTypeOfferings",
            "DescribeInstanceTypes",
            "DescribeInstances",
            "DescribeRegions",
            "DescribeSpotPriceHistory",
            "GetSpotPlacementScores",
        )
    ),
    "pricing": frozenset(("GetProducts",)),
    "savingsplans": frozenset(("DescribeSavingsPlansOfferingRates",)),
    "service-quotas": frozenset(("ListAWSDefaultServiceQuotas", "ListServiceQuotas")),
}
"""The requests of each service; of others, such as those that log a user in, all are known."""
MODEL = "service-2"
"""What botocore calls the description of a service's requests."""


def reading_session(**given: Any) -> Any:
    """Return a `boto3.Session`; raise ImportError where boto3 is not installed.

    Args:
        given: As boto3 takes it; nothing: the user's own, by their profile and environment.
    """
    boto3 = import_module("boto3")
    core = import_module("botocore.session").get_session()
    core.register_component("data_loader", _Reading(core.get_component("data_loader")))
    return boto3.Session(botocore_session=core, **given)


class _Reading:
    """A loader of botocore that leaves out of a service what is not asked for."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_service_model(
        self, service_name: str, type_name: str, api_version: str | None = None
    ) -> Any:
        """Return what botocore knows of a service; of its requests those that are asked."""
        model = self._loader.load_service_model(service_name, type_name, api_version)
        known = READS.get(service_name)
        if known is None or type_name != MODEL:
            return model
        return model | {
            "operations": {name: one for name, one in model["operations"].items() if name in known}
        }
