"""A machine that nobody sells: the number of accelerators that is asked for is the user's own."""

from __future__ import annotations

from ..snapshot import Catalogue, add_offers
from ..types import Instance, Link, Offer
from ..user_files.offers import DEFAULT_PROVIDER, DEFAULT_REGION, UserOffers, provider_of_user
from .query import OfferFilter, select_offers

ASSUMED = "nobody sells it: taken as a machine of your own"
"""Source of such a machine."""


def with_own_machines(catalogue: Catalogue, wanted: OfferFilter) -> Catalogue:
    """Return the catalogue with a machine for each wish that nobody sells, without a price.

    Its links are those that the accelerator usually has, and nothing is known of its host. A wish
    that may mean several devices, or leaves their number open, stays unmet.

    Args:
        catalogue: with the user's own offers, if there are any.
        wanted: what is asked for; nothing is added where something passes it.
    """
    if wanted.providers or wanted.instance_types or select_offers(catalogue, wanted):
        return catalogue
    named = [
        (*one.names, one.per_instance)
        for one in wanted.accelerators
        if len(one.names) == 1 and one.per_instance is not None and one.per_instance % 1 == 0
    ]
    if not named:
        return catalogue
    instances = tuple(_instance(str(name), float(count)) for name, count in named)
    mine = UserOffers(
        accelerators=(),
        instances=instances,
        offers=tuple(map(_offer, instances)),
        providers=(provider_of_user(DEFAULT_PROVIDER, ASSUMED),),
        regions=(),
    )
    return add_offers(catalogue, mine)


def _instance(accelerator: str, count: float) -> Instance:
    return Instance(
        provider=DEFAULT_PROVIDER,
        instance_type=f"{count:g}x{accelerator}",
        accelerator=accelerator,
        accelerators=count,
        vcpus=None,
        memory_bytes=None,
        intra_link=Link(name=None, bytes_per_s=None),
        inter_link=Link(name=None, bytes_per_s=None),
        local_nvme_bytes=None,
        basis="user",
        source=ASSUMED,
        confidence="low",
        note=None,
        link_domain_accelerators=None,
    )


def _offer(instance: Instance) -> Offer:
    return Offer(
        provider=instance.provider,
        region=DEFAULT_REGION,
        instance_type=instance.instance_type,
        accelerator=instance.accelerator,
        accelerators=instance.accelerators,
        on_demand_usd_per_hour=None,
        spot_usd_per_hour=None,
        spot_is_market=False,
        price_basis="owned",
        price_date=None,
        marketplace=False,
        skypilot_cloud=None,
        source=ASSUMED,
        note=None,
    )
