"""What machines pay for being reached and for reaching others: public addresses, NAT gateways.

A price that is not here is not known; it is not free.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple


class NatGateway(NamedTuple):
    """What a NAT gateway costs, US dollars before tax."""

    usd_per_hour: Decimal
    usd_per_gb: Decimal
    """For what passes it, in either direction."""


_AWS_US = NatGateway(Decimal("0.045"), Decimal("0.045"))
NAT_GATEWAYS = {
    ("aws", "us-east-1"): _AWS_US,
    ("aws", "us-east-2"): _AWS_US,
    ("aws", "us-west-2"): _AWS_US,
}
"""By provider and region: aws.amazon.com/vpc/pricing (list price, recalled). Others are dearer."""
NAT_GATEWAY_FREE = (
    "a gateway endpoint for S3 in the VPC carries what goes to and from buckets for nothing"
)
"""docs.aws.amazon.com/vpc/latest/privatelink/gateway-endpoints.html: no additional charge."""
PUBLIC_IPV4_USD_PER_HOUR = {"aws": Decimal("0.005")}
"""One public address in use, by provider, in every region: aws.amazon.com/blogs/aws/
new-aws-public-ipv4-address-charge-public-ip-insights (since 2024-02-01)."""
