"""The smallest policy of docs/permissions.md is enough, and no part of it is too much."""

import json
import re
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest
from clouds.aws import AwsWorld, session
from clouds.server import Server

from gpuplan.catalog.clouds.asking import Patience
from gpuplan.catalog.clouds.aws.client import AwsClients
from gpuplan.catalog.clouds.aws.cloud import Aws
from gpuplan.catalog.clouds.aws.session import READS
from gpuplan.catalog.clouds.interface import Asked, CloudError
from gpuplan.catalog.embedded import embedded_catalogue

PAGE = (Path(__file__).parents[4] / "docs" / "permissions.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _needs(require) -> None:
    require("cloud-clients", "boto3 and moto are not installed: make test-clouds installs them")


def policy() -> dict[str, object]:
    found = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def actions() -> set[str]:
    [statement] = policy()["Statement"]  # type: ignore[misc]
    assert statement["Effect"] == "Allow"
    return set(statement["Action"])


def asked() -> Asked:
    instances = {"p5.48xlarge": embedded_catalogue().instances["aws", "p5.48xlarge"]}
    return Asked(
        instances=instances,
        regions=("us-east-1",),
        purchase="spot",
        block_hours=24,
        now=datetime(2026, 11, 23, tzinfo=UTC),
    )


def test_clients_know_the_requests_of_the_policy_alone() -> None:
    known = {
        f"{service.replace('-', '')}:{name}" for service, names in READS.items() for name in names
    }
    assert known == actions()
    given = session()
    ec2 = given.client("ec2")
    assert hasattr(ec2, "describe_regions")
    assert not hasattr(ec2, "run_instances") and not hasattr(ec2, "purchase_capacity_block")
    assert hasattr(given.client("sts"), "assume_role"), "what logs a user in is whole"


def test_the_policy_names_what_is_asked_and_nothing_else() -> None:
    world = AwsWorld()

    def tell(_what: str, _done: int | None, _total: int | None) -> None:
        pass

    with Server(world) as server:
        aws = Aws(session(), patience=Patience(first_pause_s=0.0), endpoint_url=server.url)
        for ask in (aws.offers, aws.availability, aws.quota, aws.reservations):
            ask(asked(), tell)
        world.quotas = {}
        aws.quota(asked(), tell)
    assert {f"{service}:{operation}" for service, operation, _ in world.calls} == actions()


KEYS = {
    "describe_regions": "Regions",
    "describe_instance_types": "InstanceTypes",
    "describe_instances": "Reservations",
}
"""Requests that moto's policy engine checks, each with what it answers."""
SETUP_CALLS = 3


def answer_under(document: dict[str, object], operation: str) -> object:
    """Return what a user with that policy is answered by moto, its policy engine on."""
    boto3 = import_module("boto3")

    @import_module("moto").mock_aws
    @import_module("moto.core").set_initial_no_auth_action_count(SETUP_CALLS)
    def ask() -> object:
        root = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        iam = boto3.client("iam", "us-east-1", **root)
        iam.create_user(UserName="planner")
        iam.put_user_policy(
            UserName="planner", PolicyName="smallest", PolicyDocument=json.dumps(document)
        )
        key = iam.create_access_key(UserName="planner")["AccessKey"]
        user = boto3.Session(
            aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"]
        )
        clients = AwsClients(user, patience=Patience(tries=1, first_pause_s=0.0))
        return clients.call("ec2", "us-east-1", operation, key=KEYS[operation])

    return ask()


@pytest.mark.parametrize("operation", KEYS)
def test_motos_policy_engine_lets_the_policy_through_and_no_less(operation: str) -> None:
    assert answer_under(policy(), operation)
    action = "ec2:" + "".join(word.capitalize() for word in operation.split("_"))
    statement = {"Effect": "Allow", "Action": sorted(actions() - {action}), "Resource": "*"}
    with pytest.raises(CloudError) as refused:
        answer_under({"Version": "2012-10-17", "Statement": [statement]}, operation)
    assert refused.value.permission == action
