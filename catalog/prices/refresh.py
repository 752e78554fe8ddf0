"""Ask clouds for their prices, check what they say, and make the next snapshot of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from ..clouds.asking import one_at_a_time
from ..clouds.connect import CLOUDS
from ..clouds.interface import Asked, Cloud, CloudError, Prices, Tell
from ..embedded import Catalogue
from ..errors import PriceError
from ..types import Instance, Offer
from ..version import VERSION
from .gate import passed
from .sku_map import with_sku_map
from .snapshot import PriceSnapshot, ProviderPrices, answered, merged


def refreshed(
    clouds: Iterable[Cloud | CloudError],
    catalogue: Catalogue,
    last: PriceSnapshot | None,
    *,
    names: Iterable[str],
    regions: Iterable[str] = (),
    accept_changes: bool = False,
    now: datetime,
    tell: Tell,
) -> PriceSnapshot:
    """Return the next snapshot: new rows of the clouds that answered, old ones of the others.

    Args:
        clouds: One for each name; an error stands for one that cannot be asked.
        catalogue: At the prices known so far.
        last: The newest snapshot so far.
        names: Of the providers, in the order of `clouds`.
        regions: Only these; none: all that the catalogue has of a provider.
        accept_changes: Whether prices far from the last ones are taken.
        now: With its time zone.
        tell: Called as regions answer.

    Raises:
        PriceError: No provider answered; the message says why each did not.
    """
    catalogue, described = with_sku_map(catalogue)
    providers = {one.provider: one for one in last.providers} if last else {}
    offers = {_key(one): one for one in last.offers} if last else {}
    failures: dict[str, str] = {}
    asked_names = tuple(names)
    questions = [asked_of(catalogue, name, regions, now=now) for name in asked_names]
    for name, prices in zip(asked_names, _all_asked(clouds, questions, tell), strict=True):
        if isinstance(prices, CloudError):
            failures[name] = prices.reason
            providers[name] = _kept(name, providers.get(name), prices, now)
            continue
        gate = passed(prices.rows, catalogue, accept_changes=accept_changes)
        new = merged(catalogue, gate.rows)
        offers |= {_key(one): one for one in new}
        state = answered(name, prices, gate.refused, asked_at=now, rows=_count(offers, name))
        if not gate.rows:
            failures[name] = f"all {len(prices.rows)} prices were held back"
            before = providers.get(name)
            state = state.model_copy(
                update={
                    "is_kept": True,
                    "why": failures[name],
                    "prices_at": before and before.prices_at,
                }
            )
        providers[name] = state
    if len(failures) == len(asked_names):
        raise _nobody(failures, last)
    return PriceSnapshot(
        gpuplan_version=VERSION,
        made_at=now.astimezone(UTC),
        providers=tuple(providers[name] for name in sorted(providers)),
        offers=tuple(offers[key] for key in sorted(offers)),
        instances=_of_offers(described, last, offers.values()),
    )


def _of_offers(
    described: Iterable[Instance], last: PriceSnapshot | None, offers: Iterable[Offer]
) -> tuple[Instance, ...]:
    """Return the user's instance types that offers are of; a file that is gone loses none."""
    known = {(one.provider, one.instance_type): one for one in (last.instances if last else ())}
    known |= {(one.provider, one.instance_type): one for one in described}
    sold = {(one.provider, one.instance_type) for one in offers}
    return tuple(known[key] for key in sorted(known) if key in sold)


def _all_asked(
    clouds: Iterable[Cloud | CloudError], questions: Iterable[Asked], tell: Tell
) -> list[Prices | CloudError]:
    """Return what each cloud says, all asked at the same time, or why it says nothing."""
    shown = one_at_a_time(tell)

    def ask(cloud: Cloud | CloudError, asked: Asked) -> Prices | CloudError:
        try:
            if isinstance(cloud, CloudError):
                return cloud
            return _not_empty(cloud.offers(asked, shown))
        except CloudError as error:
            return error

    pool = ThreadPoolExecutor(max_workers=len(CLOUDS))
    try:
        return list(pool.map(ask, clouds, questions))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def asked_of(
    catalogue: Catalogue,
    provider: str,
    regions: Iterable[str] = (),
    *,
    instances: Mapping[str, Instance] | None = None,
    now: datetime,
) -> Asked:
    """Return what is asked of one provider: its instance types in its regions.

    Args:
        catalogue: Which holds them.
        provider: Its name.
        regions: Only those of these that are its own; none: all in which the catalogue has an
            offer of it.
        instances: Only these instance types; None: all of the provider.
        now: With its time zone.
    """
    sold = {(one.region, one.instance_type) for one in catalogue.offers if one.provider == provider}
    if instances is None:
        instances = {
            name: row
            for (seller, name), row in catalogue.instances.items()
            if seller == provider and not row.is_cpu
        }
    known = {region for region, _ in sold}
    return Asked(
        instances=instances,
        regions=tuple(one for one in regions if one in known) or tuple(sorted(known)),
        known_places=frozenset(place for place in sold if place[1] in instances),
        now=now,
    )


def sellers_in(
    catalogue: Catalogue, names: Iterable[str], regions: Collection[str]
) -> tuple[str, ...]:
    """Return the providers that have one of these regions; all of them where none is named."""
    sold = {(one.provider, one.region) for one in catalogue.offers}
    return tuple(
        name for name in names if not regions or any((name, one) in sold for one in regions)
    )


def _not_empty(prices: Prices) -> Prices:
    """Return the prices; raise where there is not one."""
    if prices.rows:
        return prices
    why = "it has no price of what was asked"
    if prices.unanswered:
        why = prices.unanswered[0].text
    elif prices.refused:
        why = f"none of its {len(prices.refused)} rows passed the checks"
    raise CloudError(why)


def _kept(
    name: str, before: ProviderPrices | None, error: CloudError, now: datetime
) -> ProviderPrices:
    if before is None:
        before = ProviderPrices(provider=name, asked_at=now, prices_at=None, is_kept=True)
    return before.model_copy(update={"asked_at": now, "is_kept": True, "why": error.reason})


def _nobody(failures: Mapping[str, str], last: PriceSnapshot | None) -> PriceError:
    kept = "The snapshot of the package" if last is None else f"That of {last.made_at:%Y-%m-%d}"
    reasons = "; ".join(f"{name}: {why}" for name, why in failures.items())
    return PriceError(
        f"No prices were read ({reasons}). {kept} stays in use.",
        fix="see docs/prices.md for what each provider needs, or name one with --provider.",
    )


def _count(offers: Mapping[tuple[str, str, str], Offer], provider: str) -> int:
    return sum(key[0] == provider for key in offers)


def _key(offer: Offer) -> tuple[str, str, str]:
    return offer.provider, offer.region, offer.instance_type
