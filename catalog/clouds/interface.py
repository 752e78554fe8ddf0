"""What gpuplan asks a cloud, and what each cloud answers: one small interface for all of them.

Every answer says what it could not find out: `Unanswered` names the place, the reason and the
permission that was missing. Nothing is guessed in its stead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, Protocol

from ..errors import GpuplanError
from ..frozen import FrozenModel, Usd
from ..types import CommitmentRow, EvictionRow, Instance
from ..vocabulary import OfferPurchase

Question = Literal[
    "prices",
    "spot prices",
    "commitments",
    "evictions",
    "zones",
    "quota",
    "use",
    "scores",
    "histories",
    "windows",
    "blocks",
    "held",
]
"""What is asked of one region."""
WindowStatus = Literal[
    "recommended", "possible", "no capacity", "conditions not met", "not supported"
]
Tell = Callable[[str, int | None, int | None], None]
"""Takes what is being done, how much of it is done, and of how much."""


class CloudError(GpuplanError):
    """A cloud cannot be asked, or refused; the message is gpuplan's own, never the cloud's text.

    What a client library says may hold a part of a request and with it a credential, so that only
    its error codes are passed on.

    Args:
        why: A few words: "no credentials", "no answer within 20 s".
        permission: What the account lacks, as the cloud spells it.
        temporary: Whether the same request may succeed later.
        skipped: Whether the place is not for this account at all, such as a region not enabled.
    """

    exit_code = 5

    def __init__(
        self,
        why: str,
        *,
        permission: str | None = None,
        temporary: bool = False,
        skipped: bool = False,
        fix: str | None = None,
    ) -> None:
        super().__init__(why, fix=fix)
        self.why = why
        self.permission = permission
        self.temporary = temporary
        self.skipped = skipped

    @property
    def reason(self) -> str:
        """Why, what is missing for it, and how to fix it, in one line."""
        needs = f": needs {self.permission}" if self.permission else ""
        fix = f" ({self.fix.rstrip('.')})" if self.fix else ""
        return f"{self.why}{needs}{fix}"


class Unanswered(FrozenModel):
    """Something that a cloud did not say, and why."""

    question: Question
    region: str | None = None
    """None: of the whole provider."""
    instance_type: str | None = None
    """None: of all that were asked for."""
    why: str
    permission: str | None = None
    """What the account lacks, as the cloud spells it; None where it is something else."""
    skipped: bool = False
    """Whether the region is not for this account at all."""

    @property
    def text(self) -> str:
        """The reason, and the permission where one is missing."""
        return self.why if self.permission is None else f"{self.why}: needs {self.permission}"


class Refused(FrozenModel):
    """A row that a cloud sent and that is not taken, with the rule that refused it."""

    rule: str
    provider: str
    region: str | None
    what: str
    """The instance type or SKU."""
    why: str


@dataclass(frozen=True, kw_only=True)
class PriceRow:
    """One price of one instance type in one region, as a cloud lists it today."""

    provider: str
    region: str
    instance_type: str
    purchase: OfferPurchase
    usd_per_hour: Decimal
    """Of the whole instance."""
    price_date: date
    source: str
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked: which instance types, where, how many and how they are bought."""

    instances: Mapping[str, Instance]
    """By instance type, those of one provider."""
    regions: tuple[str, ...]
    """Regions to ask; never empty."""
    known_places: frozenset[tuple[str, str]] = frozenset()
    """(region, instance type) where the catalogue has an offer, for a cloud that does not say."""
    nodes: int = 1
    purchase: OfferPurchase = "on-demand"
    block_hours: int | None = None
    """Length of a capacity block that is looked for, hours; None: none is."""
    now: datetime
    """With its time zone."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What a cloud says of its prices."""

    rows: tuple[PriceRow, ...] = ()
    commitments: tuple[CommitmentRow, ...] = ()
    """Prices for which every hour of some years is paid."""
    evictions: tuple[EvictionRow, ...] = ()
    """Chances that a spot machine is taken away within an hour."""
    refused: tuple[Refused, ...] = ()
    unmapped: tuple[str, ...] = ()
    """Instance types with accelerators that the catalogue does not have."""
    unanswered: tuple[Unanswered, ...] = ()
    answered: frozenset[tuple[str, OfferPurchase]] = frozenset()
    """Regions and ways of buying of which everything was read."""


class Zones(FrozenModel):
    """Where one instance type is offered in one region; no zones: it is not."""

    region: str
    instance_type: str
    zones: tuple[str, ...]
    restricted: str | None = None
    """Why this account cannot have it there although it is offered."""


class Score(FrozenModel):
    """How likely a request for spot machines succeeds now, in the provider's own measure."""

    region: str
    zone: str | None
    instance_type: str
    score: float
    of: float
    """The best possible."""
    source: str


class Block(FrozenModel):
    """A capacity block that can be bought: paid whole on the day it is bought."""

    region: str
    zone: str | None
    id: str
    instance_type: str
    instances: int
    hours: float
    upfront_usd: Usd
    starts: datetime
    ends: datetime
    command: str
    """What buys it."""


class SpotHistory(FrozenModel):
    """How spot machines of one type fared in one region lately, as the provider counts it."""

    region: str
    instance_type: str
    begins: datetime
    """When what was counted begins."""
    preempted_last: float | None
    """Share of the spot machines that stopped which the provider had taken away, 0 to 1, newest.

    It says why they stopped, not how often: there is no rate in it."""
    preempted_low: float | None
    """The lowest such share of all intervals that the provider counts."""
    preempted_high: float | None
    """The highest."""
    usd_low: Usd | None
    """The lowest spot price of one machine in the same time, per hour."""
    usd_high: Usd | None
    """The highest."""
    source: str


class CalendarWindow(FrozenModel):
    """What the provider answers to a wish for machines at a fixed time: where, and when."""

    region: str
    zone: str
    instance_type: str
    instances: int
    status: WindowStatus
    """`recommended`: with times; `possible`: another zone is better; else why there is none."""
    starts: datetime | None = None
    ends: datetime | None = None
    command: str | None = None
    """What reserves it. It is paid from its start to its end, used or not."""
    usd: Usd | None = None
    """Of all its machines from start to end, before tax; None where a part has no price."""
    source: str


class Availability(FrozenModel):
    """Where a cloud offers what is asked, how likely it is to be had, and what can be booked."""

    zones: tuple[Zones, ...] = ()
    scores: tuple[Score, ...] = ()
    blocks: tuple[Block, ...] = ()
    histories: tuple[SpotHistory, ...] = ()
    windows: tuple[CalendarWindow, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()


class Quota(FrozenModel):
    """How much of something an account may use in one region, in the provider's own unit."""

    region: str
    """`global`: of all regions together."""
    zone: str | None = None
    """Of a quota that counts by zone: the zone of the region with the most room."""
    instance_type: str
    purchase: OfferPurchase
    name: str
    """As the provider's own pages call it."""
    code: str
    unit: Literal["vCPU", "GPU", "TPU chip", "TPU core"]
    limit: float
    used: float | None
    """None where it is not known."""
    per_instance: float
    """Units that one instance takes."""


class Quotas(FrozenModel):
    """The quotas that count what is asked."""

    quotas: tuple[Quota, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()


class Reservation(FrozenModel):
    """Capacity that the account holds already."""

    region: str
    zone: str | None
    id: str
    instance_type: str
    kind: Literal["reservation", "capacity block"]
    instances: int
    free: int | None
    starts: datetime | None
    ends: datetime | None


class Reservations(FrozenModel):
    """What the account holds."""

    held: tuple[Reservation, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()


class Cloud(Protocol):
    """One cloud, asked through its own client library with read-only requests."""

    name: str

    def offers(self, asked: Asked, tell: Tell) -> Prices:
        """Return today's prices; raise CloudError where the provider cannot be asked at all."""
        ...

    def availability(self, asked: Asked, tell: Tell) -> Availability:
        """Return where it is offered and how likely it is to be had."""
        ...

    def quota(self, asked: Asked, tell: Tell) -> Quotas:
        """Return what the account may use."""
        ...

    def reservations(self, asked: Asked, tell: Tell) -> Reservations:
        """Return what the account holds."""
        ...

    def quota_command(self, quota: Quota, wanted: float) -> str:
        """Return the command that asks for a higher limit."""
        ...


@dataclass
class Answers:
    """Rows that are being gathered from many regions; turned into `Prices` at the end."""

    rows: list[PriceRow] = field(default_factory=list)
    commitments: list[CommitmentRow] = field(default_factory=list)
    evictions: list[EvictionRow] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    unmapped: set[str] = field(default_factory=set)
    unanswered: list[Unanswered] = field(default_factory=list)
    answered: set[tuple[str, OfferPurchase]] = field(default_factory=set)

    def add(self, read: Iterable[PriceRow | CommitmentRow | EvictionRow | Refused]) -> None:
        """Take readings, each a row or the refusal of one."""
        for one in read:
            if isinstance(one, Refused):
                self.refused.append(one)
            elif isinstance(one, CommitmentRow):
                self.commitments.append(one)
            elif isinstance(one, EvictionRow):
                self.evictions.append(one)
            else:
                self.rows.append(one)

    def prices(self) -> Prices:
        """Return what was gathered."""
        return Prices(
            rows=tuple(self.rows),
            commitments=tuple(self.commitments),
            evictions=tuple(self.evictions),
            refused=tuple(self.refused),
            unmapped=tuple(sorted(self.unmapped)),
            unanswered=tuple(self.unanswered),
            answered=frozenset(self.answered),
        )
