"""moto's AWS behind rules that make it refuse machines, and the account that SkyPilot expects."""
# pyright: reportMissingImports=false

import io
import ipaddress
import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from offline_cloud.metadata import ROLE
from offline_cloud.network import API_PORT, ENDPOINT, GATEWAY, REGION_NETWORKS, VPC

CHANGES_MACHINES = re.compile(
    rb"Action=(RunInstances|(Start|Stop|Reboot|Terminate)Instances|(Create|Delete)Tags)\b"
)
REGION = re.compile(r"Credential=[^/]+/\d+/([^/]+)/ec2")
Start = Callable[[str, list[tuple[str, str]]], Any]


def serve_aws(failures: Path, changed: Callable[[], None]) -> None:
    """Answer at network.ENDPOINT, in a thread of its own.

    Args:
        failures: a JSON list of rules, read at every request for machines. A rule has a `code`, and
            any of `type`, `region`, `zone` and `market` ("spot" or "on-demand"): a request that
            agrees with all that it has is refused.
        changed: called after every request that may have changed a machine, before it is answered.
    """
    moto = DomainDispatcherApplication(create_backend_app)

    def application(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        size = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(size) if size else b""
        environ["wsgi.input"] = io.BytesIO(body)
        if b"Action=RunInstances" in body:
            refusal = _refusal(body.decode(), environ.get("HTTP_AUTHORIZATION", ""), failures)
            if refusal is not None:
                start("400 Bad Request", [("Content-Type", "text/xml")])
                return [refusal]
        answer = moto(environ, start)
        if CHANGES_MACHINES.search(body):
            answer = [b"".join(answer)]
            changed()
        return answer

    server = make_server(GATEWAY, API_PORT, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _refusal(body: str, authorization: str, failures: Path) -> bytes | None:
    """Return the error for a request that a rule refuses."""
    rules = json.loads(failures.read_text()) if failures.exists() else []
    if not rules:
        return None
    query = dict(urllib.parse.parse_qsl(body))
    signed = REGION.search(authorization)
    region = signed.group(1) if signed else ""
    asked = {
        "type": query.get("InstanceType"),
        "region": region,
        "zone": query.get("Placement.AvailabilityZone") or _zone(region, query),
        "market": query.get("InstanceMarketOptions.MarketType", "on-demand"),
    }
    for rule in rules:
        if all(rule.get(name, value) == value for name, value in asked.items()):
            said = f"{rule['code']}: no {asked['type']} ({asked['market']}) in {asked['zone']}"
            return (
                f"<Response><Errors><Error><Code>{rule['code']}</Code><Message>{said}</Message>"
                "</Error></Errors><RequestID>0</RequestID></Response>"
            ).encode()
    return None


def _zone(region: str, query: dict[str, str]) -> str | None:
    """Return the zone of the subnet that a request names."""
    subnet = query.get("SubnetId") or query.get("NetworkInterface.1.SubnetId")
    if subnet is None:
        return None
    found = client("ec2", region).describe_subnets(SubnetIds=[subnet])["Subnets"]
    return str(found[0]["AvailabilityZone"])


def client(service: str, region: str) -> Any:
    """Return a client of the fake AWS."""
    return boto3.client(
        service,
        region_name=region,
        endpoint_url=ENDPOINT,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )


def seed_account() -> None:
    """Make what SkyPilot looks for: in every region a network with a private subnet per zone.

    And the instance profile, for which SkyPilot would wait half a minute if it had to make it.
    """
    for region, network in REGION_NETWORKS.items():
        ec2 = client("ec2", region)
        vpc = ec2.create_vpc(CidrBlock=network)["Vpc"]["VpcId"]
        ec2.create_tags(Resources=[vpc], Tags=[{"Key": "Name", "Value": VPC}])
        zones = ec2.describe_availability_zones()["AvailabilityZones"]
        _, *subnets = ipaddress.ip_network(network).subnets(new_prefix=24)
        for zone, subnet in zip(zones, subnets, strict=False):
            made = ec2.create_subnet(
                VpcId=vpc, CidrBlock=str(subnet), AvailabilityZone=zone["ZoneName"]
            )
            ec2.modify_subnet_attribute(
                SubnetId=made["Subnet"]["SubnetId"], MapPublicIpOnLaunch={"Value": False}
            )
    iam = client("iam", "us-east-1")
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName=ROLE)
    iam.add_role_to_instance_profile(InstanceProfileName=ROLE, RoleName=ROLE)
