"""What `gpuplan capacity` answers: for each region what is offered, allowed, held and sold. Pure.

An answer that a cloud did not give stays unknown, with its reason; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal, Protocol, TypeVar

from ..clouds.interface import (
    Availability,
    Block,
    CalendarWindow,
    Quota,
    Quotas,
    Reservation,
    Reservations,
    Score,
    SpotHistory,
    Unanswered,
)
from ..embedded import CURATED_DIR, Catalogue
from ..frozen import FrozenModel, Usd
from ..reserved import reserved_how
from ..terms.on_demand import sold_otherwise
from ..types import Instance
from ..vocabulary import OfferPurchase
from .sources import PriceSource

SCHEMA_VERSION = "1.0"
Startable = Literal["yes", "no", "unknown"]
RANK: Mapping[Startable, int] = {"yes": 0, "unknown": 1, "no": 2}


class QuotaLine(FrozenModel):
    """One quota beside what is needed of it."""

    name: str
    code: str
    unit: str
    region: str
    """`global`: of all regions together."""
    zone: str | None = None
    """Of a quota that counts by zone: the zone of the region with the most room."""
    limit: float
    used: float | None
    needed: float
    enough: bool | None
    """None: what is used is not known, and the limit alone would do."""
    command: str | None
    """What asks for the missing quota; None where it is enough."""


class CapacityLine(FrozenModel):
    """One instance type in one region: whether this account can start so many of it now."""

    provider: str
    region: str
    instance_type: str
    accelerator: str
    accelerators_per_node: float
    nodes: int
    purchase: OfferPurchase
    startable: Startable
    offered: bool | None
    """None: the provider did not say."""
    zones: tuple[str, ...]
    restricted: str | None
    quotas: tuple[QuotaLine, ...]
    score: Score | None
    """How likely spot machines are to be had, in the provider's own measure."""
    held: tuple[Reservation, ...]
    blocks: tuple[Block, ...]
    spot_history: SpotHistory | None = None
    """How spot machines fared there lately; None where nobody says."""
    windows: tuple[CalendarWindow, ...] = ()
    """When so many machines can be reserved there for a fixed time, zone by zone."""
    usd_per_hour: Usd | None
    """Of all nodes, at the price of the catalogue."""
    unknown: tuple[str, ...]
    """What is not known, with its reason and the permission that is missing."""

    @property
    def held_free(self) -> int:
        """How many machines are free in reservations that hold them now."""
        return sum(one.free or 0 for one in self.held)


class CapacityAnswer(FrozenModel):
    """What the account can start where, what it cannot start last."""

    schema_version: str = SCHEMA_VERSION
    asked_at: datetime
    accelerator: str
    """As it was asked for."""
    nodes: int
    purchase: OfferPurchase
    price_source: PriceSource
    lines: tuple[CapacityLine, ...]
    providers_unknown: dict[str, str] = {}
    """Providers that could not be asked at all, with the reason and how to fix it."""

    def of(self, provider: str, region: str, instance_type: str) -> CapacityLine | None:
        """Return the line of one instance type in one region."""
        for one in self.lines:
            if (one.provider, one.region, one.instance_type) == (provider, region, instance_type):
                return one
        return None


@dataclass(frozen=True, kw_only=True)
class CloudAnswer:
    """All that one cloud said, and the commands that ask it for more."""

    provider: str
    availability: Availability = field(default_factory=Availability)
    quotas: Quotas = field(default_factory=Quotas)
    reservations: Reservations = field(default_factory=Reservations)
    commands: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    """By (instance type, region of the quota, its code)."""


def capacity_lines(
    catalogue: Catalogue,
    said: CloudAnswer,
    instances: Mapping[str, Instance],
    regions: Iterable[str],
    *,
    nodes: int,
    purchase: OfferPurchase,
    now: datetime,
) -> list[CapacityLine]:
    """Return one line for each instance type in each region, in the order given.

    A region that the account may not use is left out of none: it is listed with the reason.
    """
    prices = {
        (one.region, one.instance_type): one.usd_per_hour(purchase)
        for one in catalogue.offers
        if one.provider == said.provider
    }
    return [
        _line(
            said,
            instance,
            region,
            nodes=nodes,
            purchase=purchase,
            usd_per_hour=prices.get((region, name)),
            now=now,
        )
        for region in regions
        for name, instance in instances.items()
        if (region, name) in prices or any(_of(said.availability.zones, region, name))
    ]


def in_order(lines: Iterable[CapacityLine]) -> tuple[CapacityLine, ...]:
    """Return the lines, what can be started first, then the cheapest first."""
    return tuple(
        sorted(
            lines,
            key=lambda one: (
                RANK[one.startable],
                one.usd_per_hour is None,
                one.usd_per_hour or Decimal(0),
                one.provider,
                one.region,
            ),
        )
    )


def _line(
    said: CloudAnswer,
    instance: Instance,
    region: str,
    *,
    nodes: int,
    purchase: OfferPurchase,
    usd_per_hour: Decimal | None,
    now: datetime,
) -> CapacityLine:
    name = instance.instance_type
    zones = next(_of(said.availability.zones, region, name), None)
    offered = None if zones is None else bool(zones.zones)
    quotas = tuple(
        _quota_line(quota, nodes, said)
        for quota in said.quotas.quotas
        if quota.instance_type == name and quota.region in (region, "global")
    )
    held = tuple(one for one in _of(said.reservations.held, region, name) if _is_running(one, now))
    restricted = _not_sold(instance, purchase) or (zones.restricted if zones else None)
    how = _had_otherwise(instance, purchase)
    free = sum(one.free or 0 for one in held)
    return CapacityLine(
        provider=said.provider,
        region=region,
        instance_type=name,
        accelerator=instance.accelerator,
        accelerators_per_node=instance.accelerators,
        nodes=nodes,
        purchase=purchase,
        startable=_startable(
            None if offered and how is not None else offered,
            restricted,
            quotas,
            has_held=free >= nodes,
            all_told=not any(_silent(said.quotas.unanswered, region, name, "quota")),
        ),
        offered=offered,
        zones=zones.zones if zones else (),
        restricted=restricted,
        quotas=quotas,
        score=next(_of(said.availability.scores, region, name), None),
        held=held,
        blocks=tuple(_of(said.availability.blocks, region, name)),
        spot_history=next(_of(said.availability.histories, region, name), None),
        windows=tuple(_of(said.availability.windows, region, name)),
        usd_per_hour=None if usd_per_hour is None else usd_per_hour * nodes,
        unknown=(
            *([] if how is None else [f"on demand: it is had by {how}"]),
            *_unknown(said, region, name, has_quota=bool(quotas)),
        ),
    )


def _not_sold(instance: Instance, purchase: OfferPurchase) -> str | None:
    """Return how a type is sold that nobody can start on demand; None where some can."""
    ways = sold_otherwise(CURATED_DIR).get((instance.provider, instance.instance_type))
    return None if ways is None or purchase == "spot" else f"sold {ways} alone"


def _had_otherwise(instance: Instance, purchase: OfferPurchase) -> str | None:
    """Return how a type is had whose provider names no use on demand; None of others."""
    if purchase == "spot" or "on-demand" in instance.usage_classes:
        return None
    return reserved_how(instance)


class _Located(Protocol):
    """What a cloud says of one type of machine in one region."""

    @property
    def region(self) -> str: ...
    @property
    def instance_type(self) -> str: ...


_L = TypeVar("_L", bound=_Located)


def _of(said: Iterable[_L], region: str, instance_type: str) -> Iterator[_L]:
    return (one for one in said if (one.region, one.instance_type) == (region, instance_type))


def _is_running(one: Reservation, now: datetime) -> bool:
    """Return whether reserved machines can be used now."""
    has_begun = one.starts is None or one.starts <= now
    return has_begun and (one.ends is None or one.ends > now)


def _quota_line(quota: Quota, nodes: int, said: CloudAnswer) -> QuotaLine:
    needed = quota.per_instance * nodes
    enough: bool | None = quota.limit >= needed
    if quota.used is not None:
        enough = quota.limit - quota.used >= needed
    elif enough:
        enough = None
    key = (quota.instance_type, quota.region, quota.code)
    return QuotaLine(
        name=quota.name,
        code=quota.code,
        unit=quota.unit,
        region=quota.region,
        zone=quota.zone,
        limit=quota.limit,
        used=quota.used,
        needed=needed,
        enough=enough,
        command=said.commands.get(key) if enough is False else None,
    )


def limit_wanted(quota: Quota, nodes: int) -> float:
    """Return the limit with which so many nodes can be started beside what runs already."""
    return (quota.used or 0.0) + quota.per_instance * nodes


def _startable(
    offered: bool | None,
    restricted: str | None,
    quotas: Iterable[QuotaLine],
    *,
    has_held: bool,
    all_told: bool,
) -> Startable:
    if has_held:
        return "yes"  # What is held is had, whatever the quota for other machines.
    answers = [one.enough for one in quotas]
    if offered is False or restricted is not None or False in answers:
        return "no"
    if offered is None or None in answers or not answers or not all_told:
        return "unknown"
    return "yes"


def _silent(
    unanswered: Iterable[Unanswered], region: str, name: str, question: str | None = None
) -> Iterator[Unanswered]:
    """Yield what was not answered of one type in one region."""
    return (
        one
        for one in unanswered
        if one.region in (None, region)
        and one.instance_type in (None, name)
        and question in (None, one.question)
    )


def _unknown(said: CloudAnswer, region: str, name: str, *, has_quota: bool) -> tuple[str, ...]:
    """Return what was not answered of a region, each with its reason, once."""
    silent: list[Unanswered] = [
        *said.availability.unanswered,
        *said.quotas.unanswered,
        *said.reservations.unanswered,
    ]
    found = {f"{one.question}: {one.text}": None for one in _silent(silent, region, name)}
    if not has_quota and not any(text.startswith("quota") for text in found):
        found["quota: not asked"] = None
    return tuple(found)
