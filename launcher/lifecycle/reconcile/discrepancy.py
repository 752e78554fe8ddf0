"""What `reconcile` finds: a line for a launch or for machines, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

Kind = Literal[
    "settled",
    "running",
    "orphan-cluster",
    "orphan-instance",
    "unattributed",
    "others",
    "unknown",
    "controller",
    "skipped",
]
"""A launch that was brought up to date; one that runs as it should; machines of this store that
the engine knows and no open launch owns; machines of this store that only the cloud knows; machines
with gpuplan's label whose owner is not known; machines of another store or owner;
what could not be checked; SkyPilot's own machine, from which it runs the managed jobs of everybody
who uses its server; where nothing was listed, since the account has nothing there."""
LAST: dict[Kind, int] = {"others": 1, "controller": 2, "skipped": 3}
"""What is listed for information, after what may cost this user money."""


@dataclass(frozen=True, kw_only=True)
class LabelledMachine:
    """A machine with gpuplan's labels, as its cloud lists it."""

    cloud: str
    region: str
    instance_id: str
    instance_type: str | None
    run: str
    launched_at: datetime | None
    store_id: str | None = None
    owner: str | None = None


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Regions of a cloud in which no machines were looked for."""

    cloud: str
    regions: tuple[str, ...]
    why: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The machines that a cloud lists, and where it was not asked or gave no answer."""

    instances: tuple[LabelledMachine, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    failed: tuple[Skipped, ...] = ()
    """Where it should have answered, so that machines of this store may be there unseen."""
    clouds: tuple[str, ...] = ()
    """Those that were asked."""


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """One line of what was found."""

    kind: Kind
    run: str | None
    text: str
    cluster: str | None = None
    instances: tuple[LabelledMachine, ...] = ()
    usd_per_hour: Decimal | None = None
    store_id: str | None = None
    """Id of the store, from the label."""
    owner: str | None = None
    """Owner, from the label."""
    infra: str | None = None
    since: datetime | None = None
    """From when they can have cost, where that is known."""
    by_hand: tuple[str, ...] = ()
    """Commands that end machines which are not this store's for sure."""

    @property
    def is_orphan(self) -> bool:
        """Return whether it costs money, is this store's, and no open launch owns it."""
        return self.kind in ("orphan-cluster", "orphan-instance")
