"""Machines with gpuplan's labels, as the clouds themselves list them.

One function terminates; one sets that a power-off from inside does.

Only where the cloud's own library and credentials are: today AWS, through boto3. AWS says nothing
of a region that an account has not enabled but that the credentials are wrong there, so one such
answer is a region to pass over, and only if all regions say so are the credentials at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ...labels import OWNER_LABEL, RUN_LABEL, STORE_LABEL
from ..engine import EngineError
from .reconcile import LabelledMachine, Listing, Skipped

LIVE = ("pending", "running", "stopping", "stopped")
GOVERNMENT = "us-gov-"
"""Its regions are asked with accounts of their own; no other credentials open them."""
CHINA = "cn-"
ALWAYS_ENABLED = (
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1"),
    *("eu-central-1", "eu-west-1", "eu-west-2", "eu-west-3", "eu-north-1", "ap-south-1"),
    *("ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-southeast-1", "ap-southeast-2"),
)
"""Regions that no account has to opt into: those from before 20 March 2019.

Source: AWS Account Management Reference Guide, "Enable or disable AWS Regions in your account",
https://docs.aws.amazon.com/accounts/latest/reference/manage-acct-regions.html
"""
NOT_ENABLED = ("AuthFailure", "OptInRequired")
NOT_ALLOWED = ("UnauthorizedOperation",)
NO_SUCH_KEY = ("UnrecognizedClientException", "InvalidClientTokenId")
"""A wrong key where regions are always enabled; elsewhere perhaps one that is not enabled."""
WHY_NOT_ENABLED = "not enabled for this account"


class AwsRefusedError(EngineError):
    """What AWS answered in a region, or that it did not answer."""

    def __init__(self, message: str, *, fix: str, said: str) -> None:
        super().__init__(message, fix=fix)
        self.said = said
        """The message of AWS."""


class RegionRefusedError(AwsRefusedError):
    """A region that the account or its credentials cannot use."""

    def __init__(self, message: str, *, fix: str, why: str, said: str) -> None:
        super().__init__(message, fix=fix, said=said)
        self.why = why


def labelled_instances(regions: Iterable[str]) -> Listing:
    """Return the machines of AWS that carry a run's label; none where AWS cannot be asked.

    Args:
        regions: to list; those that the account cannot use are returned as skipped, and those that
            gave no answer or another error as failed.

    Raises:
        EngineError: AWS refused in every region.
    """
    boto3 = _boto3()
    session = None if boto3 is None else boto3.Session()
    if session is None or session.get_credentials() is None:
        return Listing()
    asked, skipped = _within_reach(sorted(set(regions)), session.region_name)
    found: list[LabelledMachine] = []
    refused: dict[str, list[str]] = {}
    failed: dict[str, list[str]] = {}
    last: AwsRefusedError | None = None
    for region in asked:
        try:
            found += _in_region(boto3, region)
        except RegionRefusedError as error:
            last = error
            refused.setdefault(error.why, []).append(region)
        except AwsRefusedError as error:
            last = error
            failed.setdefault(error.said, []).append(region)
    if last is not None and sum(map(len, (*refused.values(), *failed.values()))) == len(asked):
        raise _no_region_answers(asked, last)
    return Listing(
        instances=tuple(found),
        skipped=(*skipped, *_grouped(refused)),
        failed=_grouped(failed),
        clouds=("aws",),
    )


def _grouped(regions: Mapping[str, Sequence[str]]) -> tuple[Skipped, ...]:
    return tuple(Skipped(cloud="aws", regions=tuple(one), why=why) for why, one in regions.items())


def terminate(instances: Sequence[LabelledMachine]) -> None:
    """Terminate machines that their cloud lists and SkyPilot does not know.

    Raises:
        EngineError: their cloud refused.
    """
    boto3 = _needed_boto3()
    for region in {one.region for one in instances}:
        ids = [one.instance_id for one in instances if one.region == region]
        with _explained(region):
            boto3.client("ec2", region_name=region).terminate_instances(InstanceIds=ids)


def terminate_on_power_off(run: str, regions: Iterable[str]) -> tuple[str, ...]:
    """Let a power-off from inside terminate a run's machines; return the ids of those it does.

    Spot machines are left as they are: SkyPilot's are of a one-time request, and EC2 stops only
    those of a persistent one.

    Args:
        run: as the label has it.
        regions: where its machines may be.

    Raises:
        EngineError: AWS cannot be asked, or refused.
    """
    boto3 = _needed_boto3()
    filters = [
        {"Name": f"tag:{RUN_LABEL}", "Values": [run]},
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
    ]
    found: list[str] = []
    refused: RegionRefusedError | None = None
    for region in regions:
        ec2 = boto3.client("ec2", region_name=region)
        try:
            with _explained(region):
                machines = _machines(ec2, filters)
        except RegionRefusedError as error:
            refused = error
            continue
        for machine in machines:
            if machine.get("InstanceLifecycle") != "spot":
                with _explained(region, lacks="ec2:ModifyInstanceAttribute"):
                    ec2.modify_instance_attribute(
                        InstanceId=machine["InstanceId"],
                        Attribute="instanceInitiatedShutdownBehavior",
                        Value="terminate",
                    )
            found.append(machine["InstanceId"])
    if refused is not None and not found:
        raise refused
    return tuple(found)


def _within_reach(regions: Sequence[str], own: str | None) -> tuple[list[str], list[Skipped]]:
    """Return the regions that credentials of a region can be for, and the others.

    Args:
        regions: all.
        own: the region that is set with the credentials; None where none is.
    """
    parts = {GOVERNMENT: "GovCloud", CHINA: "China"}
    here = next((prefix for prefix in parts if (own or "").startswith(prefix)), None)
    if here is not None:
        return [one for one in regions if one.startswith(here)], [
            Skipped(
                cloud="aws",
                regions=tuple(one for one in regions if not one.startswith(here)),
                why=f"the region is set to {own}, whose credentials open none of these",
            )
        ]
    skipped = [
        Skipped(
            cloud="aws",
            regions=tuple(one for one in regions if one.startswith(prefix)),
            why=f"{name} has accounts of its own; to look there, set AWS_REGION with credentials"
            " for it",
        )
        for prefix, name in parts.items()
    ]
    return (
        [one for one in regions if not one.startswith(tuple(parts))],
        [one for one in skipped if one.regions],
    )


def _no_region_answers(regions: Sequence[str], last: AwsRefusedError) -> EngineError:
    return EngineError(
        f"AWS refused in each of the {len(regions)} regions that were asked: {last.said}",
        fix="look whether `aws sts get-caller-identity` accepts these credentials, and give them"
        " ec2:DescribeInstances (and AWS_REGION, if they are for GovCloud).",
    )


def _in_region(boto3: Any, region: str) -> list[LabelledMachine]:
    filters = [
        {"Name": "tag-key", "Values": [RUN_LABEL]},
        {"Name": "instance-state-name", "Values": list(LIVE)},
    ]
    with _explained(region):
        machines = _machines(boto3.client("ec2", region_name=region), filters)
    return [_instance(one, region) for one in machines]


def _machines(ec2: Any, filters: list[dict[str, Any]]) -> list[Any]:
    pages = ec2.get_paginator("describe_instances").paginate(Filters=filters)
    reservations = [one for page in pages for one in page["Reservations"]]
    return [one for found in reservations for one in found["Instances"]]


def _instance(machine: Any, region: str) -> LabelledMachine:
    tags = {tag["Key"]: tag["Value"] for tag in machine.get("Tags", [])}
    return LabelledMachine(
        cloud="aws",
        region=region,
        instance_id=machine["InstanceId"],
        instance_type=machine.get("InstanceType"),
        run=tags[RUN_LABEL],
        launched_at=machine.get("LaunchTime"),
        store_id=tags.get(STORE_LABEL),
        owner=tags.get(OWNER_LABEL),
    )


def _boto3() -> Any:
    try:
        return import_module("boto3")
    except ImportError:
        return None


def _needed_boto3() -> Any:
    boto3 = _boto3()
    if boto3 is None:
        raise EngineError(
            "boto3 is not installed here, and it is what asks AWS.",
            fix='install it with `pip install "gpuplan[aws]"`.',
        )
    return boto3


@contextmanager
def _explained(region: str, *, lacks: str = "ec2:DescribeInstances") -> Iterator[None]:
    """Turn what AWS raises into one clear error that holds no key.

    Args:
        region: that was asked.
        lacks: the permission without which AWS refuses.

    Raises:
        RegionRefusedError: the region is one to pass over.
        EngineError: any other error of AWS.
    """
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("botocore"):
            raise
        answer = (getattr(error, "response", None) or {}).get("Error", {})
        said = answer.get("Message") or type(error).__name__
        message = f"AWS refused in {region}: {said}"
        fix = (
            "give the credentials ec2:DescribeInstances, ec2:ModifyInstanceAttribute and"
            " ec2:TerminateInstances there, or look in its console."
        )
        why = _why_passed_over(answer.get("Code"), region, lacks)
        if why is not None:
            raise RegionRefusedError(message, fix=fix, why=why, said=said) from None
        raise AwsRefusedError(message, fix=fix, said=said) from None


def _why_passed_over(code: str | None, region: str, lacks: str) -> str | None:
    """Return why a region is passed over that answers so; None where that is an error."""
    if code in NOT_ALLOWED:
        return f"these credentials lack {lacks} there"
    if code in NOT_ENABLED or (code in NO_SUCH_KEY and region not in ALWAYS_ENABLED):
        return WHY_NOT_ENABLED
    return None
