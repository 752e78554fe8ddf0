"""Which machines are on offer for a question, and what each costs at its cheapest."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from ...catalog.listing.ownership import Ownership
from ...catalog.listing.query import parse_filter, select_offers
from ...catalog.snapshot import Catalogue
from ...catalog.spot import spot_status
from ...catalog.types import Accelerator, Instance, Offer, Provider, Region
from ...catalog.vocabulary import Purchase
from ..hardware.cluster import Site
from ..plan.plan import ChosenOffer
from ..plan.question import Machine, Money
from .electricity import Electricity

LARGE_CLOUDS = ("aws", "azure", "gcp")
"""Sellers that most people who train already have an account with."""


@dataclass(frozen=True, kw_only=True)
class PricedInstance:
    """One instance type and its cheapest region."""

    instance: Instance
    accelerator: Accelerator
    offer: Offer
    purchase: Purchase
    usd_per_hour: Decimal | None
    spot_usd_per_hour: Decimal | None
    """The market's spot price of this type in this very region; None where it is not known."""
    billing: Provider | None = None
    """The seller, with what it rounds its bills to."""
    region: Region | None = None
    """Where it stands, with what its grid emits; None where that is not known."""
    owned: Ownership | None = None
    """What is stated of bought hardware."""
    discount_percent: Decimal | None = None
    """What the user's pricebook has taken off `usd_per_hour`; None: nothing."""
    tax_percent: Decimal | None = None
    """Tax on what is rented, which no price here holds; None: none is counted."""

    @property
    def taxed(self) -> Decimal:
        """What a dollar of rent costs with its tax, dollars."""
        return 1 + (self.tax_percent or Decimal(0)) / 100

    @property
    def list_usd_per_hour(self) -> Decimal | None:
        """The price before the user's discount, $/h; None without one."""
        if self.usd_per_hour is None or self.discount_percent is None:
            return None
        return self.usd_per_hour * 100 / (100 - self.discount_percent)

    @property
    def one_node(self) -> Site:
        """One such machine, as a place to run."""
        instance = self.instance
        return Site(
            accelerator=self.accelerator,
            per_node=int(instance.accelerators),
            nodes=1,
            intra_link=instance.intra_link,
            inter_link=instance.inter_link,
            link_domain=instance.link_domain_accelerators,
            host_memory_bytes=instance.memory_bytes,
            vcpus=instance.vcpus,
        )

    @cached_property
    def electricity(self) -> Electricity:
        """What is known of what it draws, and of what that emits."""
        return Electricity(
            accelerator=self.accelerator,
            instance=self.instance,
            seller=self.billing,
            region=self.region,
            owned=self.owned,
        )

    def chosen(self) -> ChosenOffer:
        """Return the offer as a plan states it."""
        spot = self.spot_usd_per_hour
        return ChosenOffer(
            provider=self.offer.provider,
            region=self.offer.region,
            instance_type=self.offer.instance_type,
            accelerator=self.accelerator.name,
            accelerators_per_node=int(self.instance.accelerators),
            purchase=self.purchase,
            usd_per_hour=None if self.usd_per_hour is None else float(self.usd_per_hour),
            spot_usd_per_hour=None if spot is None else float(spot),
            spot_status=spot_status(self.offer, self.instance),
            price_basis=self.offer.price_basis,
            price_date=self.offer.price_date,
            price_date_precision=self.offer.price_date_precision,
            list_usd_per_hour=_float(self.list_usd_per_hour),
            discount_percent=_float(self.discount_percent),
            tax_percent=_float(self.tax_percent),
        )


@dataclass(frozen=True, kw_only=True)
class Market:
    """The machines of a question, and how many offers could not be used."""

    choices: tuple[PricedInstance, ...]
    without_spec: int
    without_price: int
    cannot_train: int
    """Offers of a slice of a device (vGPU), or of a device that only infers."""


def survey(
    catalogue: Catalogue,
    machine: Machine,
    money: Money,
    *,
    with_cpus: bool = False,
    by_region: bool = False,
) -> Market:
    """Return one choice per instance type: its cheapest region for the way of buying.

    With `by_region` there is one for every region. Where plans are ordered by carbon, it is the
    region with the cleanest grid of those with a price, not the cheapest.

    Of regions at one price it is the one with the cheapest spot machines, and then the first by
    name. A type without any price stays as a choice when nothing of it is priced, so that the user
    sees it exists; it is counted in `without_price` and cannot be ranked by money.
    """
    everywhere = "all" in machine.providers
    named = tuple(p for p in machine.providers if p != "all")
    wanted = parse_filter(
        catalogue,
        accelerators=machine.accelerators,
        providers=named,
        regions=machine.regions,
        jurisdictions=machine.jurisdictions,
        instance_types=machine.instances,
        launchable_only=not (everywhere or named or machine.instances),
    )
    offers = select_offers(catalogue, wanted)
    if with_cpus:
        offers += list(catalogue.cpu_offers)
    by_type: dict[tuple[str, ...], list[Offer]] = {}
    without_spec = cannot_train = 0
    for offer in offers:
        instance = catalogue.instance_of(offer)
        accelerator = catalogue.accelerator_of(offer)
        if accelerator is None or instance is None:
            without_spec += 1
        elif instance.is_fractional or not accelerator.can_train:
            cannot_train += 1
        else:
            region = (offer.region,) if by_region else ()
            key = (offer.provider, offer.instance_type, *region)
            by_type.setdefault(key, []).append(offer)
    choices = []
    without_price = 0
    for group in by_type.values():
        choice = _cheapest(group, catalogue, money)
        if choice.usd_per_hour is None:
            without_price += 1
        choices.append(choice)
    return Market(
        choices=tuple(choices),
        without_spec=without_spec,
        without_price=without_price,
        cannot_train=cannot_train,
    )


def _cheapest(offers: list[Offer], catalogue: Catalogue, money: Money) -> PricedInstance:
    def price(offer: Offer) -> tuple[Decimal | None, Purchase]:
        on_demand, spot = offer.on_demand_usd_per_hour, offer.market_spot_usd_per_hour
        own: Purchase = "owned" if offer.price_basis == "owned" else "on-demand"
        if money.purchase == "spot":
            return spot, "spot"
        if money.purchase == "any" and spot is not None and (on_demand is None or spot < on_demand):
            return spot, "spot"
        return on_demand, own

    def grid(offer: Offer) -> float:
        region = catalogue.regions.get((offer.provider, offer.region))
        known = None if region is None else region.grid_kg_co2e_per_kwh
        return float("inf") if known is None else known

    def order(offer: Offer) -> tuple[bool, float, Decimal, bool, Decimal, str]:
        usd, _ = price(offer)
        spot = offer.market_spot_usd_per_hour
        dirt = grid(offer) if money.sort == "carbon" else 0.0
        return usd is None, dirt, usd or Decimal(0), spot is None, spot or Decimal(0), offer.region

    book = catalogue.pricebook
    best = min(offers, key=order)
    usd, purchase = price(best)
    accelerator = catalogue.accelerator_of(best)
    instance = catalogue.instance_of(best)
    assert accelerator is not None and instance is not None
    return PricedInstance(
        instance=instance,
        accelerator=accelerator,
        offer=best,
        purchase=purchase,
        usd_per_hour=usd,
        spot_usd_per_hour=best.market_spot_usd_per_hour,
        billing=catalogue.providers.get(best.provider),
        region=catalogue.regions.get((best.provider, best.region)),
        owned=catalogue.ownership.get((best.provider, best.instance_type)),
        discount_percent=book.discount_percent(best, "spot" if purchase == "spot" else "on-demand"),
        tax_percent=None if purchase == "owned" else book.tax_percent,
    )


def _float(number: Decimal | None) -> float | None:
    """Return a number as a plan states it: to 12 digits, which no source has."""
    return None if number is None else float(f"{number:.12g}")
