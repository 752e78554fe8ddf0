"""A launch that goes on, at the prices of how it is bought this time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from ....catalog.errors import PriceError
from ....catalog.snapshot import Catalogue
from ....planner.cost.run_cost import CENT
from ....planner.plan.plan import Plan
from ...skypilot.placement import price_now
from ...store.accounting import ZERO
from ...store.launch_record import LaunchRecord, PricedPlace


@dataclass(frozen=True, kw_only=True)
class BoughtAgain:
    """What it costs to go on with a launch."""

    record: LaunchRecord
    """The launch at these prices: its places, its worst case, and what limits count for it."""
    spot: bool
    cap_usd: Decimal | None
    """What its guard holds all attempts to; None where nothing is."""


def bought_again(
    record: LaunchRecord,
    plan: Plan | None,
    catalogue: Catalogue,
    *,
    spot: bool,
    price_top: float,
    cap_usd: Decimal | None,
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

    Raises:
        PriceError: the price of a place is not known as it is bought now.
    """
    places = tuple(
        PricedPlace(infra=one.infra, usd_per_hour=_usd(record, one, plan, catalogue), spot=one.spot)
        for one in _tried(record, spot=spot)
    )
    managed = record.managed and spot
    before = _dearest(record, record.places, price_top, managed=record.managed)
    now = _dearest(record, places, price_top, managed=managed)
    times = max(Decimal(1), now / before) if before else Decimal(1)
    worst, reserved = (_times(usd, times) for usd in (record.usd_worst, record.reserved_usd))
    if reserved is not None and cap_usd is not None:
        reserved = min(reserved, cap_usd)
    update = {"places": places, "usd_worst": worst, "reserved_usd": reserved}
    return BoughtAgain(record=record.model_copy(update=update), spot=spot, cap_usd=cap_usd)


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
