"""A launch that goes on, at the prices of how it is bought this time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ....catalog.errors import PriceError
from ....catalog.snapshot import Catalogue
from ....planner.cost.run_cost import CENT
from ....planner.plan.plan import Plan
from ...skypilot.placement import Place, place_again, price_now
from ...skypilot.prices import PriceDifference
from ...store.accounting import ZERO
from ...store.launch_record import LaunchRecord, PricedPlace
from .higher_prices import dearer

AskDifferences = Callable[[Sequence[Place], Sequence[bool]], Sequence[PriceDifference]]
"""Places, and whether spot machines are bought in each → where SkyPilot's price is another."""


@dataclass(frozen=True, kw_only=True)
class BoughtAgain:
    """What it costs to go on with a launch."""

    record: LaunchRecord
    """The launch at these prices: its places, its worst case, and what limits count for it."""
    spot: bool
    cap_usd: Decimal | None
    """What its guard holds all attempts to; None where nothing is."""
    places: tuple[Place, ...] = ()
    """Where it is tried, in order; nothing where its plan is not known any more."""
    notes: tuple[str, ...] = ()
    """What SkyPilot says of its prices where that is something else."""


def bought_again(
    record: LaunchRecord,
    plan: Plan | None,
    catalogue: Catalogue,
    *,
    spot: bool,
    price_top: float,
    cap_usd: Decimal | None,
    differences: AskDifferences | None = None,
) -> BoughtAgain:
    """Return a launch at the prices of how it is bought now, where they are higher of today.

    What it may cost at worst rises with the price of its dearest place, and never falls: what was
    trained at another price is in it too.

    Args:
        record: the launch, ended.
        plan: of it; None where the store does not have it any more.
        catalogue: today's prices, with the user's own offers and terms.
        spot: whether spot machines are bought.
        price_top: how high the price of its spot machines may rise, over what they cost.
        cap_usd: what its guard holds all attempts to.
        differences: asks SkyPilot what the machines cost in each place; None: nobody is asked.

    Raises:
        PriceError: the price of a place is not known as it is bought now.
    """
    places = tuple(
        PricedPlace(infra=one.infra, usd_per_hour=_usd(record, one, plan, catalogue), spot=one.spot)
        for one in _tried(record, spot=spot)
    )
    tried = () if plan is None else _as_places(places, plan, catalogue)
    theirs = (
        ()
        if plan is None or differences is None
        else tuple(differences(tried, [one.spot for one in places]))
    )
    if theirs and plan is not None:
        dear = tuple(dearer(one, plan.nodes, theirs) for one in tried)
        places, tried = tuple(map(_at_price_of, places, tried, dear)), dear
    managed = record.managed and spot
    before = _dearest(record, record.places, price_top, managed=record.managed)
    now = _dearest(record, places, price_top, managed=managed)
    times = max(Decimal(1), now / before) if before else Decimal(1)
    worst, reserved = (_times(usd, times) for usd in (record.usd_worst, record.reserved_usd))
    if reserved is not None and cap_usd is not None:
        reserved = min(reserved, cap_usd)
    update = {"places": places, "usd_worst": worst, "reserved_usd": reserved}
    return BoughtAgain(
        record=record.model_copy(update=update),
        spot=spot,
        cap_usd=cap_usd,
        places=tried,
        notes=tuple(map(str, theirs)),
    )


def task_again(
    task: Mapping[str, Any], places: Sequence[Place], spots: Sequence[bool]
) -> dict[str, Any]:
    """Return the task of a launch as SkyPilot is asked what it costs in its places, in order."""
    others = ("infra", "ordered", "use_spot")
    machine = {key: value for key, value in task["resources"].items() if key not in others}
    ordered = [
        {"infra": one.infra, "use_spot": spot} for one, spot in zip(places, spots, strict=True)
    ]
    return {**task, "resources": {**machine, "ordered": ordered}}


def _at_price_of(priced: PricedPlace, before: Place, now: Place) -> PricedPlace:
    if now == before:
        return priced
    return priced.model_copy(update={"usd_per_hour": now.paid_usd_per_hour})


def _as_places(
    places: Sequence[PricedPlace], plan: Plan, catalogue: Catalogue
) -> tuple[Place, ...]:
    return tuple(
        place_again(plan.offer, one.infra, one.usd_per_hour, catalogue, spot=one.spot)
        for one in places
    )


def _tried(record: LaunchRecord, *, spot: bool) -> Sequence[PricedPlace]:
    """Return the places of the task that is launched, each as it is bought there.

    A launch that hands over has a second task, the only one that is left where it goes on without
    spot machines.
    """
    has_both = {one.spot for one in record.places} == {True, False}
    if spot and has_both:
        return record.places
    kept = [one for one in record.places if one.spot == spot] or record.places
    return [one.model_copy(update={"spot": spot}) for one in kept]


def _usd(
    record: LaunchRecord, place: PricedPlace, plan: Plan | None, catalogue: Catalogue
) -> Decimal:
    """Return what a node costs in a place: what the launch knows, or today's price if higher."""
    known = [
        one.usd_per_hour
        for one in record.places
        if (one.infra, one.spot) == (place.infra, place.spot)
    ]
    if plan is not None:
        today = price_now(plan.offer, place.infra, catalogue, spot=place.spot)
        known += [] if today is None else [today]
    if not known:
        how, other = ("spot", "--on-demand") if place.spot else ("on demand", "--spot")
        raise PriceError(
            f"What the machines of {record.run} cost {how} in {place.infra} is not known.",
            fix=f"go on with {other}; or estimate again, with the price stated in a file for"
            " --offers where nobody else states it, and launch that plan.",
        )
    return max(known)


def _dearest(
    record: LaunchRecord, places: Sequence[PricedPlace], price_top: float, *, managed: bool
) -> Decimal:
    """Return what an hour of all that a launch has may cost at most."""
    top = Decimal(str(price_top))
    dearest = max((one.usd_per_hour * (top if one.spot else 1) for one in places), default=ZERO)
    beside = (record.controller_usd_per_hour if managed else None) or ZERO
    return dearest * record.nodes + beside


def _times(usd: Decimal | None, times: Decimal) -> Decimal | None:
    return usd if usd is None or times == 1 else (usd * times).quantize(CENT)
