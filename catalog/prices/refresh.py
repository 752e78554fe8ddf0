"""Ask clouds for their prices, check what they say, and make the next snapshot of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

from ..clouds.asking import begun, one_at_a_time
from ..clouds.connect import CLOUDS
from ..clouds.interface import Asked, Cloud, CloudError, Prices, Tell
from ..clouds.sellers.hosted import SELLERS
from ..embedded import Catalogue
from ..errors import PriceError
from ..names import in_brackets
from ..types import CommitmentRow, EvictionRow, Instance, Offer
from ..version import VERSION
from .commitment_gate import passed_commitments
from .gate import evictions_of, passed
from .sku_map import with_sku_map
from .snapshot import PriceSnapshot, ProviderPrices, answered, merged


def answers_of(
    clouds: Iterable[Cloud | CloudError],
    catalogue: Catalogue,
    *,
    names: Iterable[str],
    regions: Iterable[str] = (),
    now: datetime,
    tell: Tell,
) -> dict[str, Prices | CloudError]:
    """Return what each provider says, all asked at the same time, or why it says nothing.

    Args:
        clouds: One for each name; an error stands for one that cannot be asked.
        catalogue: At the prices known so far.
        names: Of the providers, in the order of `clouds`.
        regions: Only these; none: all that the catalogue has of a provider.
        now: With its time zone.
        tell: Called as regions answer.
    """
    catalogue, _ = with_sku_map(catalogue)
    shown = one_at_a_time(tell)

    def ask(cloud: Cloud | CloudError, asked: Asked) -> Prices | CloudError:
        try:
            if isinstance(cloud, CloudError):
                return cloud
            return _not_empty(cloud.offers(asked, shown))
        except CloudError as error:
            return error

    asked_names = tuple(names)
    calls = [
        partial(ask, cloud, asked_of(catalogue, name, regions, now=now))
        for name, cloud in zip(asked_names, clouds, strict=True)
    ]
    found = [future.result() for future in begun(calls, workers=len(CLOUDS) + len(SELLERS))]
    return dict(zip(asked_names, found, strict=True))


def refreshed(
    answers: Mapping[str, Prices | CloudError],
    catalogue: Catalogue,
    last: PriceSnapshot | None,
    *,
    accept_changes: bool = False,
    now: datetime,
) -> PriceSnapshot:
    """Return the next snapshot: new rows of the clouds that answered, old ones of the others.

    Args:
        answers: What `answers_of` returned.
        catalogue: At the prices of the newest snapshot so far.
        last: That snapshot; the next one is later than it, whatever the clock says.
        accept_changes: Whether prices far from the last ones are taken.
        now: When the clouds were asked, with its time zone.

    Raises:
        PriceError: No provider answered; the message says why each did not.
    """
    catalogue, described = with_sku_map(catalogue)
    following = _Following(catalogue, last, accept_changes=accept_changes, now=now)
    taken = {name: following.take(name, prices) for name, prices in answers.items()}
    failures = {name: why for name, why in taken.items() if why is not None}
    if len(failures) == len(answers):
        raise _nobody(failures, last)
    made_at = now.astimezone(UTC)
    if last is not None:
        made_at = max(made_at, last.made_at + timedelta(microseconds=1))
    return PriceSnapshot(
        gpuplan_version=VERSION,
        made_at=made_at,
        providers=tuple(following.providers[name] for name in sorted(following.providers)),
        offers=tuple(following.offers[key] for key in sorted(following.offers)),
        commitments=tuple(following.commitments[key] for key in sorted(following.commitments)),
        evictions=tuple(following.evictions[key] for key in sorted(following.evictions)),
        instances=_of_offers(described, last, following.offers.values()),
    )


class _Following:
    """The snapshot that follows the last one: its rows, those of each answer over the older."""

    def __init__(
        self,
        catalogue: Catalogue,
        last: PriceSnapshot | None,
        *,
        accept_changes: bool,
        now: datetime,
    ) -> None:
        self.providers = {one.provider: one for one in last.providers} if last else {}
        self.offers = {_key(one): one for one in last.offers} if last else {}
        self.evictions = {_key(one): one for one in last.evictions} if last else {}
        self.commitments = {_term_key(one): one for one in last.commitments} if last else {}
        self._catalogue = catalogue
        self._accept_changes = accept_changes
        self._now = now

    def take(self, name: str, prices: Prices | CloudError) -> str | None:
        """Take what a provider answered; return why nothing of it is taken, if so."""
        before = self.providers.get(name)
        if isinstance(prices, CloudError):
            self.providers[name] = _kept(name, before, prices, self._now)
            return prices.reason
        gate = passed(prices.rows, self._catalogue, accept_changes=self._accept_changes)
        new = merged(self._catalogue, gate.rows)
        self.offers |= {_key(one): one for one in new}
        terms = passed_commitments(
            prices.commitments,
            self._catalogue,
            self.commitments.values(),
            _on_demand([*self._catalogue.offers, *new]),
            accept_changes=self._accept_changes,
        )
        self.commitments |= {_term_key(one): one for one in terms.rows}
        evictions, contradictory = evictions_of(prices.evictions)
        self.evictions |= {_key(one): one for one in evictions}
        state = answered(
            name,
            prices,
            [*gate.refused, *terms.refused, *contradictory],
            asked_at=self._now,
            rows=_count(self.offers, name),
            commitments=_count(self.commitments, name),
            evictions=_count(self.evictions, name),
        )
        failure = None if gate.rows else f"all {len(prices.rows)} prices were held back"
        if failure is not None:
            prices_at = None if before is None else before.prices_at
            changes = {"is_kept": True, "why": failure, "prices_at": prices_at}
            state = state.model_copy(update=changes)
        self.providers[name] = state
        return failure


def _of_offers(
    described: Iterable[Instance], last: PriceSnapshot | None, offers: Iterable[Offer]
) -> tuple[Instance, ...]:
    """Return the user's instance types that offers are of; a file that is gone loses none."""
    known = {(one.provider, one.instance_type): one for one in (last.instances if last else ())}
    known |= {(one.provider, one.instance_type): one for one in described}
    sold = {(one.provider, one.instance_type) for one in offers}
    return tuple(known[key] for key in sorted(known) if key in sold)


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


def sold_elsewhere(catalogue: Catalogue, name: str, regions: Iterable[str]) -> CloudError:
    """Return that a provider which was asked for has none of these regions, and which it has."""
    theirs = {one.region for one in catalogue.offers if one.provider == name}
    return CloudError(f"it has no {' or '.join(sorted(regions))}, only{in_brackets(theirs)}")


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


def _count(rows: Iterable[tuple[str, *tuple[object, ...]]], provider: str) -> int:
    return sum(key[0] == provider for key in rows)


def _on_demand(offers: Iterable[Offer]) -> dict[tuple[str, str, str], Decimal]:
    """Return the prices on demand by their place; of two offers of one, the later holds."""
    prices = ((_key(one), one.on_demand_usd_per_hour) for one in offers)
    return {key: usd for key, usd in prices if usd is not None}


def _term_key(row: CommitmentRow) -> tuple[str, str, str, int]:
    return row.provider, row.region, row.instance_type, row.term_years


def _key(offer: Offer | EvictionRow) -> tuple[str, str, str]:
    return offer.provider, offer.region, offer.instance_type
