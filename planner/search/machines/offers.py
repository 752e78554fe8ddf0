"""Which machines are on offer for a question, and what each costs at its cheapest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType

from ....catalog.errors import UsageError, did_you_mean
from ....catalog.listing.ownership import Ownership
from ....catalog.listing.query import select_offers
from ....catalog.snapshot import Catalogue
from ....catalog.spot import spot_status
from ....catalog.terms.terms_of_offer import Term
from ....catalog.types import (
    USER_PRICE_BASES,
    Accelerator,
    EvictionRow,
    Instance,
    Offer,
    Provider,
    Region,
)
from ....catalog.vocabulary import Purchase
from ...cost.beside_machines.in_order import NOTHING, BesideUsd, usd_of_dataset
from ...cost.paid_whole import PaidWhole
from ...goodput.evaluations import Evaluations
from ...goodput.own_stops import NO_OWN_STOPS, OwnStops
from ...hardware.bridges import link_of_node
from ...hardware.cluster import Site
from ...plan.plan import ChosenOffer
from ...plan.question import Machine, Money, Work
from .electricity import Electricity
from .known_offers import known_offers, no_match_of, wanted_offers
from .ways_to_buy import Way, by_the_hour, for_a_term

NO_WORK = Work()
SpotPrices = Mapping[tuple[str, str, str], Mapping[date, Decimal]]
"""Provider, region and instance type → US dollars an hour by the day on which they were seen."""
NO_SPOT_PRICES: SpotPrices = MappingProxyType({})
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
    own_nodes: int | None = None
    """How many of it the user has; None where the user's file does not say so."""
    discount_percent: Decimal | None = None
    """What the user's pricebook has taken off `usd_per_hour`; None: nothing."""
    tax_percent: Decimal | None = None
    """Tax on what is rented, which no price here holds; None: none is counted."""
    term: Term | None = None
    """The term that `usd_per_hour` is the price of; None where it is rented by the hour."""
    pays_rest: bool = False
    """Whether the cost of a job holds what of the term it leaves unused."""
    on_demand_usd_per_hour: Decimal | None = None
    """What the same machine costs by the hour, which a run that outlasts its term takes."""
    own_stops: OwnStops = NO_OWN_STOPS
    """What stopped the user's own runs, on whatever machines."""
    eviction: EvictionRow | None = None
    """The seller's chance per hour that spot machines of it are taken away; None: not known."""
    evaluations: Evaluations | None = None
    """What is evaluated while the work trains; None where that is not known."""
    dataset: BesideUsd = NOTHING
    """What the data set of the work counts there."""
    spot_prices: Mapping[date, Decimal] | None = None
    """Of its spot machines by the day on which they were seen; None where it is not bought so, or
    none are known."""

    @property
    def may_be_chosen(self) -> bool:
        """Whether it has a price, or is the user's own and its file says none: it is there."""
        is_own = self.offer.price_basis in USER_PRICE_BASES and self.purchase != "spot"
        return self.usd_per_hour is not None or is_own

    @property
    def is_own(self) -> bool:
        """Whether it is a machine of the user's own: bought, or there without a price."""
        is_unpriced = self.offer.price_basis in USER_PRICE_BASES and self.usd_per_hour is None
        return self.purchase == "owned" or (is_unpriced and self.purchase != "spot")

    @property
    def paid_whole(self) -> PaidWhole | None:
        """What a job pays for in whole, used or not; None where it pays what it uses."""
        if self.term is None or not self.pays_rest:
            return None
        return PaidWhole.of(self.term, self.on_demand_usd_per_hour)

    @property
    def way(self) -> tuple[object, ...] | None:
        """What keeps one way of paying for a machine apart from the others; None on demand."""
        term = self.term
        if term is None:
            return ("spot",) if self.purchase == "spot" else None
        return term.years, term.count, term.block_days

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

    @cached_property
    def one_node(self) -> Site:
        """One such machine, as a place to run."""
        instance = self.instance
        return Site(
            accelerator=self.accelerator,
            per_node=int(instance.accelerators),
            nodes=1,
            intra_link=link_of_node(
                instance.intra_link, self.accelerator, int(instance.accelerators)
            ),
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
        spot, term, offer = self.spot_usd_per_hour, self.term, self.offer
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
            term_years=None if term is None or term.block_days else float(term.years),
            price_basis=offer.price_basis if term is None else term.price_basis,
            price_date=offer.price_date if term is None else term.price_date,
            price_date_precision=offer.price_date_precision if term is None else None,
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
    untrainable: tuple[Accelerator, ...] = ()
    """Devices of those offers, each once."""
    no_match: str | None = None
    """Where nobody sells what is asked for: that, and what nearby is sold, as one sentence."""


def survey(
    catalogue: Catalogue,
    machine: Machine,
    money: Money,
    *,
    with_cpus: bool = False,
    by_region: bool = False,
    has_amount: bool = False,
    own_stops: OwnStops = NO_OWN_STOPS,
    work: Work = NO_WORK,
    spot_prices: SpotPrices = NO_SPOT_PRICES,
    evaluations: Evaluations | None = None,
) -> Market:
    """Return one choice per instance type: its cheapest region for the way of buying.

    With `by_region` there is one for every region; of reserved machines one for every reservation.
    Where anything may be bought for a job that is known (`has_amount`), there is one more for every
    term a type is sold for: whether the job fills it is seen when its hours are known. Where plans
    are ordered by carbon, it is the region with the cleanest grid of those with a price, not the
    cheapest.

    Where the work says where its data set is, that region is one more choice. Of regions at one
    price it is the one with the cheapest spot machines, and then the first by name. A type
    without any price stays as a choice when nothing of it is priced, so that the user sees that it
    exists; it is counted in `without_price` and cannot be ranked by money.
    """
    wanted = wanted_offers(catalogue, machine)
    offers = select_offers(catalogue, wanted)
    no_match = None if offers else no_match_of(catalogue, wanted)
    if with_cpus:
        offers += list(catalogue.cpu_offers)
    known = known_offers(offers, catalogue)
    choices = []
    without_price = 0
    for group in known.by_type(by_region=by_region):
        found = _ways(group, catalogue, money, has_amount=has_amount)
        without_price += found[0].usd_per_hour is None
        # Where the data set is, it need not be moved, which may be worth a dearer hour.
        near = [one for one in group if (one.provider, one.region) == work.dataset_place]
        if near and all(way.offer.region != near[0].region for way in found):
            found += _ways(near, catalogue, money, has_amount=has_amount)
        made = (_choice(way, catalogue, work, own_stops, spot_prices) for way in found)
        choices += [replace(one, evaluations=evaluations) for one in made]
    return Market(
        choices=tuple(choices),
        without_spec=known.without_spec,
        without_price=without_price,
        cannot_train=known.cannot_train,
        untrainable=known.untrainable,
        no_match=no_match,
    )


def refuse_unknown_place(work: Work, catalogue: Catalogue) -> None:
    """Raise UsageError where the data set is said to be in a place that the catalogue lacks."""
    place = work.dataset_place
    if place is None:
        return
    provider, region = place
    if provider not in catalogue.providers:
        near = did_you_mean(provider, sorted(catalogue.providers))
        raise UsageError(
            f"There is no provider {provider!r} to have the data set.{near}",
            fix="give a provider of `gpuplan offers` and its region, such as aws/us-east-1.",
        )
    regions = sorted(of for name, of in catalogue.regions if name == provider)
    if regions and region not in regions:
        raise UsageError(
            f"{provider} has no region {region!r}.{did_you_mean(region, regions)}",
            fix=f"take one of {', '.join(regions[:5])}, …"
            if len(regions) > 5
            else f"take one of {', '.join(regions)}.",
        )


def _ways(
    offers: list[Offer], catalogue: Catalogue, money: Money, *, has_amount: bool
) -> list[Way]:
    """Return the ways of paying for one instance type that become choices; one at least."""
    wish, book = money.purchase, catalogue.pricebook

    def order(way: Way) -> tuple[bool, float, Decimal, bool, Decimal, str]:
        usd, offer = way.usd_per_hour, way.offer
        spot = offer.market_spot_usd_per_hour
        dirt = _grid(offer, catalogue) if money.sort == "carbon" else 0.0
        return usd is None, dirt, usd or Decimal(0), spot is None, spot or Decimal(0), offer.region

    by_hour = [min((by_the_hour(offer, wish, book) for offer in offers), key=order)]
    if wish == "any" and by_hour[0].purchase == "spot":
        # Cheaper by the hour, but it is stopped more often, and may need a controller.
        steady = min((by_the_hour(offer, "on-demand", book) for offer in offers), key=order)
        by_hour += [steady] if steady.usd_per_hour is not None else []
    if wish in ("on-demand", "spot", "all") or (wish == "any" and not has_amount):
        return by_hour
    terms = sorted(for_a_term(offers, wish, catalogue), key=order)
    if wish == "any":
        # One hour of a term that is no cheaper than an hour alone never pays.
        terms = [one for one in terms if _is_below(one, by_hour[-1])]
        return [*by_hour, *_first_of_each(terms)]
    unpriced = replace(by_hour[0], usd_per_hour=None, discount_percent=None)
    if wish == "block":
        unpriced = replace(unpriced, purchase="block")
    return _first_of_each(terms) or [unpriced]


def _is_below(way: Way, other: Way) -> bool:
    usd, least = way.usd_per_hour, other.usd_per_hour
    return usd is not None and (least is None or usd < least)


def _first_of_each(ways: Iterable[Way]) -> list[Way]:
    """Return the first way of each term; of those that are held, one for every number of them."""
    found: dict[object, Way] = {}
    for way in ways:
        assert way.term is not None
        found.setdefault((way.term.years, way.term.count, way.term.block_days), way)
    return list(found.values())


def _grid(offer: Offer, catalogue: Catalogue) -> float:
    region = catalogue.regions.get((offer.provider, offer.region))
    known = None if region is None else region.grid_kg_co2e_per_kwh
    return float("inf") if known is None else known


def _choice(
    way: Way, catalogue: Catalogue, work: Work, own_stops: OwnStops, spot_prices: SpotPrices
) -> PricedInstance:
    offer = way.offer
    place = (offer.provider, offer.region, offer.instance_type)
    tax_percent = None if way.purchase == "owned" else catalogue.pricebook.tax_percent
    accelerator = catalogue.accelerator_of(offer)
    instance = catalogue.instance_of(offer)
    assert accelerator is not None and instance is not None
    return PricedInstance(
        instance=instance,
        accelerator=accelerator,
        offer=offer,
        purchase=way.purchase,
        usd_per_hour=way.usd_per_hour,
        spot_usd_per_hour=offer.market_spot_usd_per_hour,
        billing=catalogue.billing_of(offer.provider, offer.instance_type),
        region=catalogue.regions.get((offer.provider, offer.region)),
        owned=catalogue.ownership.get((offer.provider, offer.instance_type)),
        own_nodes=catalogue.own_nodes.get(place),
        discount_percent=way.discount_percent,
        tax_percent=tax_percent,
        dataset=usd_of_dataset(
            work, offer.provider, offer.region, is_owned=way.purchase == "owned"
        ),
        own_stops=own_stops,
        eviction=catalogue.evictions.get(place),
        spot_prices=spot_prices.get(place) if way.purchase == "spot" else None,
        term=way.term,
        pays_rest=way.pays_rest,
        on_demand_usd_per_hour=by_the_hour(offer, "on-demand", catalogue.pricebook).usd_per_hour,
    )


def _float(number: Decimal | None) -> float | None:
    """Return a number as a plan states it: to 12 digits, which no source has."""
    return None if number is None else float(f"{number:.12g}")
