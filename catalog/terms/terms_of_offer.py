"""The terms one machine can be had for: commitments of the catalogue, prices of the pricebook."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from ..embedded import Catalogue
from ..types import CommitmentRow, Offer
from ..units import HOURS_PER_DAY, HOURS_PER_YEAR, SECONDS_PER_HOUR
from .blocks import block_days, block_lost_s, block_most_instances
from .commitments import commitments_of

COMMITMENT, PRICEBOOK = "commitment", "pricebook"
"""`price_basis` of a commitment of the catalogue, and of what the user's pricebook states."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """A price for which every hour of some years is paid, used or not."""

    years: Decimal
    usd_per_hour: Decimal
    """US dollars of one instance for an hour of the term, what is paid upfront included."""
    price_basis: str
    price_date: date | None = None
    source: str
    discount_percent: Decimal | None = None
    """What the user's pricebook has taken off it; None: nothing."""
    count: int | None = None
    """Instances that are held already; None where it is not signed yet."""
    block_days: tuple[int, ...] = ()
    """Lengths in which it can be had, where it is a capacity block; its years are the longest."""
    most_instances: int | None = None
    """Instances that one capacity block has at most; None: of a term of years, or not known."""
    lost_s: float = 0.0
    """Seconds at the end of a block in which machines are ended already."""

    @property
    def is_held(self) -> bool:
        """Whether it is paid already, whatever this job does."""
        return self.count is not None

    @property
    def hours(self) -> Decimal:
        """Hours of the whole term."""
        return self.years * HOURS_PER_YEAR

    @property
    def seconds(self) -> float:
        """Seconds of the whole term."""
        return float(self.hours) * SECONDS_PER_HOUR


def terms_of(offer: Offer, catalogue: Catalogue) -> tuple[Term, ...]:
    """Return every term the machine of an offer can be had for, the cheapest hour first.

    A price that the user refreshed goes over that of the package.
    """
    book = catalogue.pricebook
    percent = book.discount_percent(offer, "committed")
    found = []
    for row in _commitments(offer, catalogue):
        usd = book.discounted(row.usd_per_hour, percent)
        assert usd is not None
        found.append(
            Term(
                years=Decimal(row.term_years),
                usd_per_hour=usd,
                price_basis=COMMITMENT,
                price_date=row.price_date,
                source=row.source,
                discount_percent=percent,
            )
        )
    for one in book.reservations(offer):
        found.append(
            Term(
                years=one.term_years,
                usd_per_hour=one.effective_usd_per_hour,
                price_basis=PRICEBOOK,
                source="your pricebook",
                count=one.count,
            )
        )
    return tuple(sorted(found, key=lambda term: term.usd_per_hour))


def blocks_of(offer: Offer, catalogue: Catalogue) -> tuple[Term, ...]:
    """Return the capacity blocks that the user states a quoted price of, the cheapest hour first.

    One with a rate for every length that its seller has is one term with all of them.
    """
    found = []
    for one in catalogue.pricebook.blocks_of(offer):
        days = block_days(one.provider) if one.days is None else (one.days,)
        found.append(
            Term(
                years=Decimal(days[-1]) * HOURS_PER_DAY / HOURS_PER_YEAR,
                usd_per_hour=one.effective_usd_per_hour,
                price_basis=PRICEBOOK,
                source="your pricebook",
                block_days=days,
                most_instances=block_most_instances(one.provider),
                lost_s=block_lost_s(one.provider),
            )
        )
    return tuple(found)


def _commitments(offer: Offer, catalogue: Catalogue) -> tuple[CommitmentRow, ...]:
    place = (offer.provider, offer.region, offer.instance_type)
    by_years = {row.term_years: row for row in commitments_of(*place)}
    by_years |= {row.term_years: row for row in catalogue.commitments.get(place, ())}
    return tuple(by_years.values())
