"""Which offers the user asks for: a filter, and the offers that pass it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from ..embedded import Catalogue
from ..errors import UsageError, did_you_mean
from ..names import (
    instance_names,
    is_accelerator,
    match_accelerators,
    resolve_provider,
    resolve_region,
)
from ..types import Offer
from ..vocabulary import OfferWish
from .price_gaps import missing_type

# fmt: off
EU_MEMBERS = frozenset((
    "at", "be", "bg", "cy", "cz", "de", "dk", "ee", "es", "fi", "fr", "gr", "hr", "hu", "ie",
    "it", "lt", "lu", "lv", "mt", "nl", "pl", "pt", "ro", "se", "si", "sk",
))
# fmt: on
"""The 27 member states of the European Union (europa.eu, 2026)."""
EEA_MEMBERS = EU_MEMBERS | {"is", "li", "no"}
"""Where the GDPR applies as law: the Union and the three other EEA states."""
JURISDICTION_GROUPS: dict[str, frozenset[str]] = {
    "eu": EEA_MEMBERS,
    "eea": EEA_MEMBERS,
    "eu27": EU_MEMBERS,
    "uk": frozenset({"gb"}),
}


@dataclass(frozen=True)
class AcceleratorRequest:
    """Accelerators asked for: any of these names, and how many per instance (None: any number)."""

    names: frozenset[str]
    per_instance: float | None = None

    def accepts(self, offer: Offer) -> bool:
        """Return whether the offer holds such accelerators, in that number."""
        return offer.accelerator in self.names and self.per_instance in (None, offer.accelerators)


@dataclass(frozen=True, kw_only=True)
class OfferFilter:
    """What offers must be; an empty field asks for nothing. `parse_filter` makes one of words."""

    accelerators: tuple[AcceleratorRequest, ...] = ()
    providers: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()
    countries: frozenset[str] = frozenset()
    """ISO 3166 alpha-2 in lower case; an offer of unknown country passes only an empty field."""
    instance_types: frozenset[str] = frozenset()
    purchase: OfferWish = "any"
    """Sold this way at a known price; "any" keeps unpriced offers too."""
    max_usd_per_hour: Decimal | None = None
    """Limit on one instance; an unknown price passes no limit."""
    launchable_only: bool = False
    """Leave out marketplaces and sellers `gpuplan launch` cannot reach; the user's own stay."""

    def accepts(self, offer: Offer, *, country: str | None) -> bool:
        """Return whether the offer, in a region of that country, passes every field."""
        return (
            self._accepts_place(offer, country)
            and self._accepts_machine(offer)
            and self._accepts_price(offer)
        )

    def _accepts_place(self, offer: Offer, country: str | None) -> bool:
        return (
            (not self.providers or offer.provider in self.providers)
            and (not self.regions or offer.region in self.regions)
            and (not self.countries or country in self.countries)
            and (not self.launchable_only or offer.launchable or offer.is_user)
        )

    def _accepts_machine(self, offer: Offer) -> bool:
        return (not self.instance_types or offer.instance_type in self.instance_types) and (
            not self.accelerators or any(wanted.accepts(offer) for wanted in self.accelerators)
        )

    def _accepts_price(self, offer: Offer) -> bool:
        prices = {"on-demand": offer.on_demand_usd_per_hour, "spot": offer.spot_usd_per_hour}
        if self.purchase != "any":
            prices = {self.purchase: prices[self.purchase]}
        elif self.max_usd_per_hour is None:
            return True
        if self.max_usd_per_hour is not None and "spot" in prices:
            # A spot price that promises no discount is not what one would pay.
            prices["spot"] = offer.market_spot_usd_per_hour
        known = [price for price in prices.values() if price is not None]
        if self.max_usd_per_hour is not None:
            return any(price <= self.max_usd_per_hour for price in known)
        return bool(known)


def select_offers(catalogue: Catalogue, wanted: OfferFilter) -> list[Offer]:
    """Return the offers that pass the filter, in the catalogue's order."""
    if not wanted.countries:
        return [offer for offer in catalogue.offers if wanted.accepts(offer, country=None)]
    return [
        offer
        for offer in catalogue.offers
        if wanted.accepts(offer, country=catalogue.jurisdiction_of(offer))
    ]


def parse_filter(
    catalogue: Catalogue,
    *,
    accelerators: Iterable[str] = (),
    providers: Iterable[str] = (),
    regions: Iterable[str] = (),
    jurisdictions: Iterable[str] = (),
    instance_types: Iterable[str] = (),
    purchase: OfferWish = "any",
    max_usd_per_hour: float | Decimal | None = None,
    launchable_only: bool = False,
) -> OfferFilter:
    """Return the filter that these words of the user mean; every one may hold commas.

    Raises:
        UsageError: A name is unknown, or a number is not above zero.
    """
    provider_names = frozenset(
        resolve_provider(name, catalogue=catalogue) for name in _split(providers)
    )
    return OfferFilter(
        accelerators=tuple(
            parse_accelerator_request(text, catalogue=catalogue) for text in _split(accelerators)
        ),
        providers=provider_names,
        regions=frozenset(
            resolve_region(name, providers=provider_names, catalogue=catalogue)
            for name in _split(regions)
        ),
        countries=frozenset().union(
            *(resolve_jurisdiction(text, catalogue) for text in _split(jurisdictions))
        ),
        instance_types=frozenset(
            resolve_instance_type(name, catalogue) for name in _split(instance_types)
        ),
        purchase=purchase,
        max_usd_per_hour=None if max_usd_per_hour is None else _parse_limit(max_usd_per_hour),
        launchable_only=launchable_only,
    )


def parse_accelerator_request(
    text: str, *, catalogue: Catalogue | None = None
) -> AcceleratorRequest:
    """Return what "H100", "A100-80GB-SXM" or "H100:8" (eight in one instance) asks for.

    Raises:
        UsageError: The name is unknown, or the number is not above zero.
    """
    name, colon, number = text.partition(":")
    names = frozenset(match_accelerators(name, catalogue=catalogue))
    if not colon:
        return AcceleratorRequest(names)
    try:
        per_instance = float(number)
    except ValueError:
        per_instance = 0.0
    if not 0 < per_instance < float("inf"):
        raise UsageError(
            f"{text!r} asks for {number!r} accelerators per instance.",
            fix=f"Give a number above zero, for example {name}:8, or leave it out.",
        )
    return AcceleratorRequest(names, per_instance)


def parse_jurisdiction(text: str) -> frozenset[str]:
    """Return the countries of "eu" (EU and EEA), "eu27" (EU alone), "us", or any country code.

    Raises:
        UsageError: The text is neither a group nor a two-letter code.
    """
    folded = text.strip().casefold()
    if folded in JURISDICTION_GROUPS:
        return JURISDICTION_GROUPS[folded]
    if len(folded) == 2 and folded.isalpha() and folded.isascii():
        return frozenset({folded})
    raise UsageError(
        f"There is no jurisdiction {text!r}.{did_you_mean(text, JURISDICTION_GROUPS)}",
        fix="Give eu (EU and EEA), eu27 (the Union alone), or a country's two letters (us, de).",
    )


def resolve_jurisdiction(text: str, catalogue: Catalogue) -> frozenset[str]:
    """Return the countries that `parse_jurisdiction` does, of which the catalogue has a region.

    Raises:
        UsageError: The text is no jurisdiction, or nobody has a region in that country.
    """
    countries = parse_jurisdiction(text)
    known = {region.jurisdiction for region in catalogue.regions.values() if region.jurisdiction}
    if countries & known:
        return countries
    near = did_you_mean(text, sorted(known | set(JURISDICTION_GROUPS)))
    raise UsageError(
        f"No region of the catalogue is in {text!r}.{near}",
        fix=f"Give {', '.join(JURISDICTION_GROUPS)} or a country: {', '.join(sorted(known))}.",
    )


def resolve_instance_type(name: str, catalogue: Catalogue) -> str:
    """Return the catalogue's spelling of one instance type, of any provider.

    Args:
        name: in any case; what its provider says already may be left out ("ND96asr_v4").
        catalogue: where to look.

    Raises:
        UsageError: Nobody sells an instance of that name, or the short name fits several.
    """
    wanted, types = name.strip().casefold(), {known for _, known in catalogue.instances}
    by_folded = {known.casefold(): known for known in types}
    if wanted in by_folded:
        return by_folded[wanted]
    if is_accelerator(wanted.partition(":")[0], catalogue=catalogue):
        raise UsageError(
            f"There is no instance type {name!r}: it is an accelerator.",
            fix=f"Give it as an accelerator: --accelerator {name} (advise and fits: --on).",
        )
    short = {known for who, known in catalogue.instances if wanted in instance_names(who, known)}
    if len(short) == 1:
        return short.pop()
    if short:
        raise UsageError(
            f"{name!r} could be any of {', '.join(sorted(short))}.", fix="Give the full name."
        )
    gap = missing_type(name.strip())
    why = did_you_mean(name, types) if gap is None else f" It is {gap.text}."
    raise UsageError(
        f"There is no instance type {name!r}.{why}",
        fix="See the names with `gpuplan offers`, or add your own with --offers.",
    )


def _split(words: Iterable[str]) -> list[str]:
    return [part.strip() for word in words for part in word.split(",") if part.strip()]


def _parse_limit(limit: float | Decimal) -> Decimal:
    try:
        value = Decimal(str(limit))
    except InvalidOperation:
        value = Decimal(0)
    if not (value.is_finite() and value > 0):
        raise UsageError(
            f"The price limit {limit} is not above zero.", fix="Give US dollars per hour."
        )
    return value
