"""A prepared launch at SkyPilot's price, in each place where that is above the plan's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from ....planner.cost.launch_cost import LaunchCost
from ....planner.cost.run_cost import CENT
from ...skypilot.placement import Place
from ...skypilot.prices import PriceDifference
from ..preflight import refuse_hourly, refuse_over_budget
from ..prepared import Prepared
from ..task.guard_config import at_rates, rates, refuse_no_room, taxed_rate


def at_higher_prices(prepared: Prepared, differences: Sequence[PriceDifference]) -> Prepared:
    """Return a launch at the higher of two prices in each of its places, and both of them said.

    Its guard, its account, its worst case and what refuses it count that one.

    Raises:
        LimitError: at that price it passes a limit of the request.
    """
    if not differences:
        return prepared
    notes = (*prepared.notes, *map(str, differences))
    places, fallback = (
        tuple(dearer(place, prepared.plan.nodes, differences) for place in some)
        for some in (prepared.places, prepared.fallback)
    )
    if (places, fallback) == (prepared.places, prepared.fallback):
        return replace(prepared, notes=notes)
    nodes = prepared.plan.nodes
    beside = float(taxed_rate(prepared.cost.controller_usd_per_hour, prepared.plan))
    spot, others = rates(places, nodes, beside), rates(fallback, nodes, beside)
    if not prepared.request.buys_spot(prepared.plan):
        spot, others = {}, {**spot, **others}
    orders = at_rates(prepared.orders, spot, others)
    refuse_hourly((*places, *fallback), nodes, prepared.request.guard.max_hourly_cost_usd)
    refuse_over_budget(_expected_at(prepared, places[0]), prepared.request.guard)
    refuse_no_room(orders)
    cost = _at_worst(prepared, (*places, *fallback))
    return replace(
        prepared, places=places, fallback=fallback, orders=orders, cost=cost, notes=notes
    )


def dearer(place: Place, nodes: int, differences: Sequence[PriceDifference]) -> Place:
    """Return a place at SkyPilot's price where that is higher; one may be in it twice, as spot."""
    usd = max(
        one.dearer_usd_per_hour / nodes
        for one in (
            *differences,
            PriceDifference(
                infra=place.infra,
                ours_usd_per_hour=place.usd_per_hour * nodes,
                skypilot_usd_per_hour=place.usd_per_hour * nodes,
            ),
        )
        if (one.infra, one.ours_usd_per_hour) == (place.infra, place.usd_per_hour * nodes)
    )
    return place if usd == place.usd_per_hour else replace(place, usd_per_hour=usd)


def _expected_at(prepared: Prepared, first: Place) -> LaunchCost:
    """Return the cost with what is expected of it at the price of the first place."""
    cost, nodes = prepared.cost, prepared.plan.nodes
    before = cost.usd_per_hour + cost.controller_usd_per_hour
    now = first.usd_per_hour * nodes + cost.controller_usd_per_hour
    expected = cost.usd_expected
    if expected is not None and before > 0:
        expected = (expected * max(Decimal(1), now / before)).quantize(CENT)
    worst = _at_worst(prepared, (first, *prepared.all_places)).usd_worst
    return replace(
        cost, usd_per_hour=first.usd_per_hour * nodes, usd_expected=expected, usd_worst=worst
    )


def _at_worst(prepared: Prepared, places: Sequence[Place]) -> LaunchCost:
    """Return the cost with its worst case at the price of the dearest place."""
    cost, worst = prepared.cost, prepared.cost.usd_worst
    before = max(one.usd_per_hour for one in prepared.all_places)
    now = max(one.usd_per_hour for one in places)
    if worst is None or before <= 0 or now <= before:
        return cost
    return replace(cost, usd_worst=(worst * now / before).quantize(CENT))
