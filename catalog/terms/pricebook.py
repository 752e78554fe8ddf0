"""What one customer pays: discounts, reservations, credits, currency, tax. Pure.

`catalog/user_files/pricebook.py` reads it from a file; docs/pricebook.md explains every field.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer

from ..types import CatalogueRow, Offer
from ..units import HOURS_PER_DAY, HOURS_PER_YEAR

DiscountOf = Literal["on-demand", "spot", "committed"]
"""The prices that a discount is taken off."""
Number = Annotated[Decimal, PlainSerializer(float, return_type=float, when_used="json")]
"""Exact where it is reckoned with; a plain number in JSON, and in the schema of the file."""
PERCENT = Decimal(100)


class Discount(CatalogueRow):
    """Percent off the prices of a seller; a field that is not given is any."""

    percent: Number = Field(gt=0, lt=100)
    """Off the listed price: 12 leaves 88 % of it."""
    provider: str | None = None
    """Who sells it: aws, gcp, azure …"""
    region: str | None = None
    """As the provider names it."""
    instance: str | None = None
    """Instance type, as the provider names it."""
    purchase: DiscountOf = "on-demand"
    """The prices it is taken off: "on-demand", "spot" or "committed"."""

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """How specific it is: an instance type counts before a region, that before a provider."""
        return self.instance is not None, self.region is not None, self.provider is not None

    def covers(self, offer: Offer, purchase: DiscountOf) -> bool:
        """Return whether the price of this offer, bought this way, is one it is taken off."""
        return (
            self.purchase == purchase
            and self.provider in (None, offer.provider)
            and self.region in (None, offer.region)
            and self.instance in (None, offer.instance_type)
        )


class Reservation(CatalogueRow):
    """A price that somebody signed, or may sign, for a term: it is paid used or not."""

    provider: str
    """Who sells it."""
    instance: str
    """Instance type, as the provider names it."""
    region: str
    """As the provider names it."""
    usd_per_hour: Number = Field(ge=0)
    """US dollars of one instance for every hour of the term, beside what is paid upfront."""
    term_years: Number = Field(gt=0, le=10)
    """Years of the term."""
    upfront_usd: Number = Field(default=Decimal(0), ge=0)
    """US dollars of one instance at the start of the term."""
    count: int | None = Field(default=None, ge=1)
    """Instances that are held already; None for a price that is offered and not signed yet."""
    id: str | None = None
    """Its name at the provider (`cr-…` on AWS), by which machines are started in it; None where it
    is not given."""

    @property
    def effective_usd_per_hour(self) -> Decimal:
        """US dollars of one instance for an hour of the term, its share of the upfront included."""
        return self.usd_per_hour + self.upfront_usd / (self.term_years * HOURS_PER_YEAR)


class CapacityBlock(CatalogueRow):
    """A price that a seller quoted for a capacity block: machines for whole days, paid upfront."""

    provider: str
    """Who sells it."""
    instance: str
    """Instance type, as the provider names it."""
    region: str
    """As the provider names it."""
    days: int | None = Field(default=None, ge=1, le=3650)
    """Length of the block that was quoted; None: the hourly rate holds for every length sold."""
    upfront_usd: Number | None = Field(default=None, gt=0)
    """US dollars of one instance for the block; needs `days`. Either this or `usd_per_hour`."""
    usd_per_hour: Number | None = Field(default=None, gt=0)
    """US dollars of one instance for every hour of the block, which are paid upfront too."""

    @property
    def effective_usd_per_hour(self) -> Decimal:
        """US dollars of one instance for an hour of the block."""
        if self.usd_per_hour is not None:
            return self.usd_per_hour
        assert self.upfront_usd is not None and self.days is not None
        return self.upfront_usd / (self.days * HOURS_PER_DAY)


class Credit(CatalogueRow):
    """Money that a seller gave, to be spent with it until a day."""

    provider: str
    """Who gave it."""
    usd: Number = Field(gt=0)
    """US dollars that are left of it."""
    expires: date
    """The last day on which it is taken."""


class Currency(CatalogueRow):
    """A currency to show amounts in beside US dollars."""

    code: str = Field(pattern="^[A-Z]{3}$")
    """ISO 4217: EUR, GBP …"""
    per_usd: Number = Field(gt=0)
    """Units of it that one US dollar buys."""
    date: date
    """The day of that rate."""


class Pricebook(CatalogueRow):
    """The terms of one customer."""

    discounts: tuple[Discount, ...] = ()
    """Percent off; of those that cover a price the most specific alone is taken."""
    reserved: tuple[Reservation, ...] = ()
    """Prices for a term."""
    blocks: tuple[CapacityBlock, ...] = ()
    """Prices that were quoted for capacity blocks."""
    credits: tuple[Credit, ...] = ()
    """Money to be spent with a seller."""
    currency: Currency | None = None
    """A currency to show amounts in beside US dollars."""
    tax_percent: Number | None = Field(default=None, ge=0, le=100)
    """Value-added or sales tax on everything that is rented; not given: none is counted."""

    def discount_percent(self, offer: Offer, purchase: DiscountOf) -> Decimal | None:
        """Return the percent off the price of an offer, None without one.

        A price that the user's own offers file states is what they pay: nothing is taken off it.
        """
        if offer.is_user:
            return None
        return most_specific(one for one in self.discounts if one.covers(offer, purchase))

    def discounted(self, usd: Decimal | None, percent: Decimal | None) -> Decimal | None:
        """Return a price less a discount, exactly; an unknown price stays unknown."""
        return usd if usd is None or percent is None else usd * (PERCENT - percent) / PERCENT

    def priced(self, offer: Offer) -> Offer:
        """Return an offer at the prices of this customer."""
        on_demand = self.discount_percent(offer, "on-demand")
        spot = self.discount_percent(offer, "spot")
        if on_demand is None and spot is None:
            return offer
        return offer.model_copy(
            update={
                "on_demand_usd_per_hour": self.discounted(offer.on_demand_usd_per_hour, on_demand),
                "spot_usd_per_hour": self.discounted(offer.spot_usd_per_hour, spot),
            }
        )

    def reservations(self, offer: Offer) -> tuple[Reservation, ...]:
        """Return the reserved prices of the machine of an offer, the cheapest first."""
        key = offer.provider, offer.region, offer.instance_type
        found = [one for one in self.reserved if (one.provider, one.region, one.instance) == key]
        return tuple(sorted(found, key=lambda one: one.effective_usd_per_hour))

    def blocks_of(self, offer: Offer) -> tuple[CapacityBlock, ...]:
        """Return the quoted blocks of the machine of an offer, the cheapest hour first."""
        key = offer.provider, offer.region, offer.instance_type
        found = [one for one in self.blocks if (one.provider, one.region, one.instance) == key]
        return tuple(sorted(found, key=lambda one: one.effective_usd_per_hour))

    def credits_of(self, provider: str, on: date) -> tuple[Credit, ...]:
        """Return what a seller gave that has not expired on a day, the soonest to end first."""
        found = [one for one in self.credits if one.provider == provider and one.expires >= on]
        return tuple(sorted(found, key=lambda one: one.expires))


def most_specific(discounts: Iterable[Discount]) -> Decimal | None:
    """Return the percent of the most specific of these discounts, None where there is none."""
    found = max(discounts, key=lambda one: one.rank, default=None)
    return None if found is None else found.percent
