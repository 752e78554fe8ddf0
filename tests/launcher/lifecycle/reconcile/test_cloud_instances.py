"""Machines by their labels, as AWS lists them: what a region may answer, with a stub of boto3."""

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.lifecycle.reconcile import cloud_instances
from gpuplan.launcher.lifecycle.reconcile.cloud_instances import (
    RegionRefusedError,
    labelled_instances,
    terminate,
    terminate_on_power_off,
)
from gpuplan.launcher.lifecycle.reconcile.reconcile import LabelledMachine, Listing

REFUSED = "AWS was not able to validate the provided access credentials"


class ClientError(Exception):
    """As botocore raises it."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code, "Message": REFUSED}}


ClientError.__module__ = "botocore.exceptions"


class Aws:
    """An account: the error code of each region that refuses, and the machines of the others."""

    def __init__(
        self,
        refusing: Mapping[str, str],
        *,
        machines: Mapping[str, Any] | None = None,
        region: str | None = None,
    ) -> None:
        self.refusing, self.machines, self.region = refusing, machines or {}, region
        self.asked: list[str] = []
        self.set: list[tuple[str, str, str]] = []
        """Region, machine and shutdown behaviour of each call that changed one."""

    def Session(self) -> Any:  # noqa: N802
        return SimpleNamespace(get_credentials=lambda: "some", region_name=self.region)

    def client(self, service: str, *, region_name: str) -> Any:
        assert service == "ec2"

        def answer(**_: object) -> Any:
            self.asked.append(region_name)
            if region_name in self.refusing:
                raise ClientError(self.refusing[region_name])
            return [{"Reservations": [{"Instances": self.machines.get(region_name, [])}]}]

        def modify(*, InstanceId: str, Attribute: str, Value: str) -> None:  # noqa: N803
            assert Attribute == "instanceInitiatedShutdownBehavior"
            if f"modify {InstanceId}" in self.refusing:
                raise ClientError(self.refusing[f"modify {InstanceId}"])
            self.set.append((region_name, InstanceId, Value))

        return SimpleNamespace(
            get_paginator=lambda _: SimpleNamespace(paginate=answer),
            terminate_instances=answer,
            modify_instance_attribute=modify,
        )


@pytest.fixture
def observe(monkeypatch: pytest.MonkeyPatch):
    """Return a function that looks at regions of an account."""

    def at(aws: Aws, *regions: str) -> Listing:
        monkeypatch.setitem(sys.modules, "boto3", aws)
        return labelled_instances(regions)

    return at


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("AuthFailure", "not enabled for this account"),
        ("OptInRequired", "not enabled for this account"),
        ("UnrecognizedClientException", "not enabled for this account"),
        ("InvalidClientTokenId", "not enabled for this account"),
        ("UnauthorizedOperation", "these credentials lack ec2:DescribeInstances there"),
    ],
)
def test_a_region_that_is_not_enabled_is_passed_over_and_named(
    observe, code: str, why: str
) -> None:
    tags = {"gpuplan-run": "net-1", "gpuplan-store": "5a", "gpuplan-owner": "ann"}
    machine = {
        "InstanceId": "i-1",
        "InstanceType": "p4d.24xlarge",
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    refusing = {"af-south-1": code, "me-south-1": code}
    aws = Aws(refusing, machines={"us-east-1": [machine]})
    found = observe(aws, "us-east-1", "me-south-1", "af-south-1", "eu-west-1")
    assert aws.asked == ["af-south-1", "eu-west-1", "me-south-1", "us-east-1"]
    (one,) = found.instances
    assert (one.instance_id, one.run, one.store_id, one.owner) == ("i-1", "net-1", "5a", "ann")
    assert [(skipped.regions, skipped.why) for skipped in found.skipped] == [
        (("af-south-1", "me-south-1"), why)
    ]


def test_credentials_that_no_region_takes_are_an_error(observe) -> None:
    with pytest.raises(EngineError, match=f"each of the 2 regions that were asked: {REFUSED}"):
        observe(
            Aws({"us-east-1": "AuthFailure", "af-south-1": "AuthFailure"}),
            "us-east-1",
            "af-south-1",
        )


@pytest.mark.parametrize(
    "code", ["InvalidClientTokenId", "UnrecognizedClientException", "RequestLimitExceeded"]
)
def test_another_error_of_one_region_hides_no_machine_of_the_others(observe, code: str) -> None:
    tags = [{"Key": "gpuplan-run", "Value": "net-1"}]
    aws = Aws({"us-east-1": code}, machines={"eu-west-1": [{"InstanceId": "i-1", "Tags": tags}]})
    found = observe(aws, "us-east-1", "eu-west-1")
    assert [one.instance_id for one in found.instances] == ["i-1"]
    assert [(one.regions, one.why) for one in found.failed] == [(("us-east-1",), REFUSED)]
    assert found.skipped == ()
    with pytest.raises(EngineError, match="each of the 2 regions that were asked"):
        observe(Aws({"us-east-1": code, "eu-west-1": code}), "us-east-1", "eu-west-1")


def test_govcloud_and_china_are_asked_with_their_own_credentials_alone(observe) -> None:
    regions = ("us-east-1", "us-gov-west-1", "us-gov-east-1", "cn-north-1")
    aws = Aws({})
    found = observe(aws, *regions)
    assert aws.asked == ["us-east-1"]
    assert [(one.regions, one.why.partition(" has")[0]) for one in found.skipped] == [
        (("us-gov-east-1", "us-gov-west-1"), "GovCloud"),
        (("cn-north-1",), "China"),
    ]
    aws = Aws({}, region="us-gov-west-1")
    found = observe(aws, *regions)
    assert aws.asked == ["us-gov-east-1", "us-gov-west-1"]
    assert [one.regions for one in found.skipped] == [("cn-north-1", "us-east-1")]


def test_without_boto3_or_credentials_aws_is_not_asked(observe, monkeypatch) -> None:
    monkeypatch.setattr(cloud_instances, "_boto3", lambda: None)
    assert labelled_instances(["us-east-1"]) == Listing()
    monkeypatch.undo()
    aws = Aws({})
    monkeypatch.setattr(aws, "Session", lambda: SimpleNamespace(get_credentials=lambda: None))
    assert observe(aws, "us-east-1") == Listing()
    assert aws.asked == []


def test_a_machine_that_may_not_be_ended_is_an_error(observe, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", Aws({"us-east-1": "UnauthorizedOperation"}))
    machine = LabelledMachine(
        cloud="aws",
        region="us-east-1",
        instance_id="i-1",
        instance_type=None,
        run="net-1",
        launched_at=None,
    )
    with pytest.raises(RegionRefusedError, match="AWS refused in us-east-1"):
        terminate([machine])


def test_all_machines_of_a_run_terminate_by_a_power_off_and_spot_ones_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spot = {"InstanceId": "i-spot", "InstanceLifecycle": "spot"}
    machines = {"us-west-2": [{"InstanceId": "i-1"}, {"InstanceId": "i-2"}, spot]}
    aws = Aws({"us-east-1": "UnauthorizedOperation"}, machines=machines)
    monkeypatch.setitem(sys.modules, "boto3", aws)
    found = terminate_on_power_off("net-1", ["us-east-1", "us-west-2"])
    assert found == ("i-1", "i-2", "i-spot")
    assert aws.set == [("us-west-2", "i-1", "terminate"), ("us-west-2", "i-2", "terminate")]


def test_a_behaviour_that_may_not_be_changed_names_the_permission(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machines = {"us-west-2": [{"InstanceId": "i-1"}]}
    aws = Aws({"modify i-1": "UnauthorizedOperation"}, machines=machines)
    monkeypatch.setitem(sys.modules, "boto3", aws)
    with pytest.raises(RegionRefusedError) as refused:
        terminate_on_power_off("net-1", ["us-west-2"])
    assert "ec2:ModifyInstanceAttribute" in refused.value.why
    monkeypatch.setitem(sys.modules, "boto3", Aws({"us-west-2": "UnauthorizedOperation"}))
    with pytest.raises(RegionRefusedError, match="AWS refused in us-west-2"):
        terminate_on_power_off("net-1", ["us-west-2"])
    monkeypatch.setattr(cloud_instances, "_boto3", lambda: None)
    with pytest.raises(EngineError, match="boto3 is not installed"):
        terminate_on_power_off("net-1", ["us-west-2"])
