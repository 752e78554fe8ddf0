"""The network interfaces between nodes: how many a plan counts on, and how many are asked for.

SkyPilot 0.14 attaches all of a machine's EFA interfaces only where its settings say
`aws.use_internal_ips`, else one (sky/provision/aws/instance.py): AWS gives no public address to a
machine that starts with several. No task can say so (`OVERRIDEABLE_CONFIG_KEYS_IN_TASK`), the
configuration of a launch can. To types it does not list it attaches none (sky/clouds/aws.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ...catalog.errors import UsageError
from ...catalog.snapshot import Catalogue
from ...catalog.terms.addresses import NAT_GATEWAY_FREE, NAT_GATEWAYS
from ...catalog.terms.network_interfaces import most_interfaces
from ...catalog.terms.storage import gb_bytes
from ...catalog.units import GB
from ...planner.plan.plan import Plan
from .placement import Place
from .user_settings import AwsSettings

ATTACHED_TO = (
    *("g4dn", "g5", "g6", "gr6", "g6e", "g7e"),
    *("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"),
)
"""Families to which SkyPilot 0.14 attaches EFA interfaces."""
PLUGIN = "session-manager-plugin"
"""What the AWS command line needs to reach machines without a public address."""

_PRIVATE = {"aws": {"use_internal_ips": True}}


@dataclass(frozen=True, kw_only=True)
class Interfaces:
    """Of one machine among several."""

    most: int
    """That machines of this type can have, which is what the plan counts on."""
    asked: int
    bytes_per_s: float | None
    """Of all of them together, one direction, in theory; None where it is not known."""
    config: dict[str, Any] | None = None
    """SkyPilot's configuration by which they are attached; None where it needs none."""
    needs_plugin: bool = False
    """Whether the machines can be reached only through AWS Systems Manager."""

    @property
    def is_private(self) -> bool:
        """Whether the machines get no public address for this."""
        return self.config == _PRIVATE

    @property
    def text(self) -> str:
        """Return how many at which bandwidth, for the user."""
        if self.bytes_per_s is None:
            return f"{self.asked} of {self.most} interfaces a node"
        gb_per_s = self.bytes_per_s / GB
        share = f"{gb_per_s * self.asked / self.most:g} of {gb_per_s:g} GB/s"
        return f"{self.asked} of {self.most} interfaces a node, {share} between nodes"


def interfaces_of(
    plan: Plan,
    tried: tuple[Place, ...],
    catalogue: Catalogue,
    *,
    public_ips: bool,
    managed: bool,
    settings: AwsSettings,
) -> Interfaces | None:
    """Return what is asked for; None where one node trains alone, or where that is not known.

    Args:
        plan: what is launched.
        tried: where.
        catalogue: for what the machines are.
        public_ips: whether the user wants machines with public addresses.
        managed: whether SkyPilot's controller starts the machines.
        settings: of the user's SkyPilot.
    """
    offer = plan.offer
    most = most_interfaces(offer.provider, offer.instance_type)
    if plan.nodes == 1 or most is None or any(one.cloud != "aws" for one in tried):
        return None
    row = catalogue.instances.get((offer.provider, offer.instance_type))
    line = None if row is None else row.inter_link.bytes_per_s
    if offer.instance_type.partition(".")[0] not in ATTACHED_TO:
        return Interfaces(most=most, asked=0, bytes_per_s=line)
    if most == 1:
        return Interfaces(most=1, asked=1, bytes_per_s=line)
    if public_ips:
        config = {"aws": {"use_internal_ips": False}} if settings.internal_ips else None
        return Interfaces(most=most, asked=1, bytes_per_s=line, config=config)
    if settings.internal_ips is not None or managed:
        # A controller has no plugin, and would reach the machines through one.
        asked = most if settings.internal_ips else 1
        return Interfaces(most=most, asked=asked, bytes_per_s=line)
    return Interfaces(
        most=most,
        asked=most,
        bytes_per_s=line,
        config=_PRIVATE,
        needs_plugin=not settings.has_proxy,
    )


def interface_notes(
    interfaces: Interfaces | None,
    *,
    managed: bool,
    region: str,
    checkpoint_bytes: float | None = None,
) -> tuple[str, ...]:
    """Return what a user should know of the network before it costs.

    Args:
        interfaces: of each node.
        managed: whether SkyPilot's controller starts the machines.
        region: where they are tried first.
        checkpoint_bytes: of one that goes to a bucket; None where none does, or it is not known.
    """
    if interfaces is None or (interfaces.asked == interfaces.most and interfaces.config is None):
        return ()
    if interfaces.asked == interfaces.most:
        reached = (
            f", and SkyPilot reaches them through AWS Systems Manager, with {PLUGIN} here"
            if interfaces.needs_plugin
            else ""
        )
        return (
            "machines with several network interfaces get no public address from AWS"
            " (aws.use_internal_ips): your VPC needs a private subnet with a NAT gateway, which is"
            f" billed {_nat_price(region, checkpoint_bytes)} and is in none of these sums{reached}."
            f" --public-ips takes one interface instead; {NAT_GATEWAY_FREE}",
        )
    why = "as --public-ips or your settings of SkyPilot ask"
    fix = "leave --public-ips out, or set aws.use_internal_ips: true in ~/.sky/config.yaml"
    if interfaces.asked == 0:
        why, fix = "SkyPilot 0.14 attaches none to this type", "take other machines"
    elif managed:
        why = "as SkyPilot's controller starts them"
        fix = "set aws.use_internal_ips: true, and how machines are reached, in ~/.sky/config.yaml"
    return (
        f"the plan counts on {interfaces.most} network interfaces a node and gets"
        f" {interfaces.asked}, {why}: its steps may take much longer, and its sums do not know it."
        f" For all of them {fix}",
    )


def _nat_price(region: str, checkpoint_bytes: float | None) -> str:
    """Return what a NAT gateway is billed by, with its dollars where they are known."""
    price = NAT_GATEWAYS.get(("aws", region))
    if price is None:
        return "by the hour and by the GB"
    billed = f"${price.usd_per_hour} an hour and ${price.usd_per_gb} a GB"
    if not checkpoint_bytes:
        return billed
    usd = price.usd_per_gb * Decimal(checkpoint_bytes) / gb_bytes("aws")
    return f"{billed} (a checkpoint that goes to a bucket through it ${usd:,.2f})"


def refuse_unreachable(interfaces: Interfaces | None, *, has_plugin: bool) -> None:
    """Refuse to rent machines that SkyPilot could not reach from here, and would wait for.

    Raises:
        UsageError: what reaches them is not installed.
    """
    if interfaces is not None and interfaces.needs_plugin and not has_plugin:
        raise UsageError(
            f"These machines get no public address, and {PLUGIN} is not installed here: SkyPilot"
            " would wait for them while they are paid for.",
            fix=f"install {PLUGIN} (docs.aws.amazon.com/systems-manager), set"
            " aws.ssh_proxy_command in ~/.sky/config.yaml, or give --public-ips, which takes one"
            f" of the {interfaces.most} interfaces.",
        )
