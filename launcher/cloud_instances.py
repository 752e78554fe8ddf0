"""Machines that carry gpuplan's labels, as the clouds themselves list them. Read-only but for one.

Only where the cloud's own library and credentials are: today AWS, through boto3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from .engine import EngineError
from .reconcile import Instance

RUN_TAG = "gpuplan-run"
LIVE = ("pending", "running", "stopping", "stopped")


def labelled_instances(regions: Iterable[str]) -> list[Instance]:
    """Return the machines of AWS that carry a run's label; none where AWS cannot be asked.

    Args:
        regions: which are looked at; those not enabled for the account are left out.

    Raises:
        EngineError: AWS answered, and refused.
    """
    boto3 = _boto3()
    if boto3 is None or boto3.Session().get_credentials() is None:
        return []
    return [one for region in regions for one in _in_region(boto3, region)]


def terminate(instances: Sequence[Instance]) -> None:
    """Give machines back that their cloud lists and SkyPilot does not know.

    Raises:
        EngineError: their cloud refused.
    """
    boto3 = _boto3()
    if boto3 is None:
        raise EngineError(
            "boto3 is not installed here, and it is what asks AWS.",
            fix='install it with `pip install "gpuplan[aws]"`.',
        )
    for region in {one.region for one in instances}:
        ids = [one.instance_id for one in instances if one.region == region]
        with _explained(region):
            boto3.client("ec2", region_name=region).terminate_instances(InstanceIds=ids)


def _in_region(boto3: Any, region: str) -> Iterator[Instance]:
    filters = [
        {"Name": "tag-key", "Values": [RUN_TAG]},
        {"Name": "instance-state-name", "Values": list(LIVE)},
    ]
    with _explained(region):
        pages = boto3.client("ec2", region_name=region).get_paginator("describe_instances")
        reservations = [
            one for page in pages.paginate(Filters=filters) for one in page["Reservations"]
        ]
    for reservation in reservations:
        for machine in reservation["Instances"]:
            tags = {tag["Key"]: tag["Value"] for tag in machine.get("Tags", [])}
            yield Instance(
                cloud="aws",
                region=region,
                instance_id=machine["InstanceId"],
                instance_type=machine.get("InstanceType"),
                run=tags[RUN_TAG],
                launched_at=machine.get("LaunchTime"),
            )


def _boto3() -> Any:
    try:
        return import_module("boto3")
    except ImportError:
        return None


@contextmanager
def _explained(region: str) -> Iterator[None]:
    """Turn what AWS raises into one clear error that holds no key."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("botocore"):
            raise
        response = getattr(error, "response", None) or {}
        said = response.get("Error", {}).get("Message") or type(error).__name__
        raise EngineError(
            f"AWS refused in {region}: {said}",
            fix="give the credentials ec2:DescribeInstances and ec2:TerminateInstances there, or"
            " look in its console.",
        ) from None
