"""Whether a machine has a spot price, may have one that nobody knows, or is not sold so."""

from __future__ import annotations

from typing import Literal

from .types import Instance, Offer

SpotStatus = Literal["price", "unknown", "not sold"]
SPOT_CLASSES = frozenset({"spot", "preemptible"})
"""Classes of use (`usage_classes` of `data/instances.csv`) in which a machine may be taken away:
AWS (EC2 DescribeInstanceTypes, SupportedUsageClasses), Azure and Google Cloud say spot, Nebius says
preemptible. Each row of that table has its source."""


def spot_status(offer: Offer, instance: Instance) -> SpotStatus:
    """Return what is known of the spot market of one instance type in one region.

    "price" where the market's price is known; "unknown" where the provider sells the type so and
    that price is not known, or where nothing is stated of the type; "not sold" where the provider's
    classes of use for the type have no spot, and for machines of one's own.

    Sellers that list spot machines as a type of their own (Verda, Vast.ai) do not sell the type of
    the same accelerator without it so.
    """
    if offer.market_spot_usd_per_hour is not None:
        return "price"
    if offer.price_basis == "owned":
        return "not sold"
    classes = instance.usage_classes
    return "not sold" if classes and SPOT_CLASSES.isdisjoint(classes) else "unknown"
