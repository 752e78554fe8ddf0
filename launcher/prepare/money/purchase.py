"""How the machines of a launch are bought, what stops them, and what the launch costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from ....catalog.snapshot import Catalogue
from ....catalog.types import Accelerator
from ....catalog.units import SECONDS_PER_HOUR
from ....planner.cost.bought import slower_than_steps, stops_bought
from ....planner.cost.launch_cost import LaunchCost, launch_cost
from ....planner.cost.paid_whole import PaidWhole
from ....planner.cost.spot_moves import spot_price_range
from ....planner.goodput.own_stops import NO_OWN_STOPS, OwnStops
from ....planner.plan.parts import SpotPriceRange
from ....planner.plan.plan import Estimated, Plan, Stops
from ....planner.search.machines.offers import NO_SPOT_PRICES, SpotPrices
from ...guard.orders import Orders
from ...skypilot.placement import Place
from ..plan_choice import tried
from ..request import LaunchRequest
from ..task.guard_config import restart_s, smoke_steps, total_steps
from ..task.task import idle_minutes
from .controller import controller_usd_per_hour
from .deadline import bought_in_time, fallback
from .own_terms import Signed, is_held, to_be_signed


@dataclass(frozen=True, kw_only=True)
class Bought:
    """The machines of a launch, and its costs."""

    request: LaunchRequest
    """As asked for, with what its deadline changes."""
    late: tuple[str, ...]
    """Notes on the deadline."""
    accelerator: Accelerator | None
    """None where the catalogue does not know it."""
    places: tuple[Place, ...]
    fallback: tuple[Place, ...]
    """Where other machines are bought, so that spot machines do not cost the deadline."""
    stops: Stops | None
    """None for a plan of a version that did not look."""
    slower: float
    """What a run takes for every second of its steps."""
    steps: int | None
    """Of the first launch: a smoke test has fewer than the plan. None where not known."""
    cost: LaunchCost
    """Of the first launch."""
    hourly: LaunchCost
    """Of the whole plan by the hour, as its guard counts: without what is paid of a term unused."""
    by_hour: LaunchCost
    """Of the first launch by the hour: what its account counts, and is compared with."""
    signed: Signed | None = None
    """The term that is to be signed for it, at whose price its first place is."""
    is_term_held: bool = False
    """Whether the pricebook says that the term of the plan's price is held."""
    moves: SpotPriceRange | None = None
    """How far the price of its spot machines moves; None on demand, or not known."""

    @property
    def price_top(self) -> float:
        """How high the price of its spot machines may rise, over today's."""
        return 1.0 if self.moves is None else self.moves.high


def bought(
    plan: Plan,
    request: LaunchRequest,
    catalogue: Catalogue,
    *,
    now: datetime,
    own_stops: OwnStops = NO_OWN_STOPS,
    spot_prices: SpotPrices = NO_SPOT_PRICES,
) -> Bought:
    """Return where and how a plan is bought.

    Args:
        plan: what is launched.
        request: how.
        catalogue: today's prices, accelerators and providers.
        now: the time, for the deadline.
        own_stops: what stopped the user's own launches.
        spot_prices: of spot machines by place and day, as far as they were seen.

    Raises:
        UsageError: what is asked for contradicts the plan.
        PriceError: a price is not known.
    """
    accelerator = catalogue.accelerators.get(plan.offer.accelerator)
    every = request.training.eval_every_steps
    steady = stops_bought(plan, accelerator, "on-demand", own_stops, eval_every=every)
    steps_s = (total_steps(plan, request) or 0) * plan.step_time_s.value
    slower = slower_than_steps(steady, steps_s)
    request, late = bought_in_time(plan, request, now=now, slower=slower)
    places, others = tried(plan, request, catalogue), fallback(plan, request, catalogue)
    bought = request.bought(plan)
    own_script = request.command is not None
    place = (plan.offer.provider, plan.offer.region, plan.offer.instance_type)
    stops = stops_bought(
        plan,
        accelerator,
        bought,
        own_stops,
        own_script=own_script,
        eviction=catalogue.evictions.get(place),
        eval_every=every,
    )
    steps = total_steps(plan, request)
    trained = min(steps, smoke_steps()) if steps and request.guard.smoke else steps

    machines = _Machines(plan, places, others, request, catalogue, stops)
    hours = machines.cost(steps, None).hours_expected
    moves = spot_moves(plan, request, places, spot_prices, hours)
    signed = to_be_signed(plan, catalogue) if places[0].is_of_term else None

    return Bought(
        request=request,
        late=tuple(late),
        accelerator=accelerator,
        places=places,
        fallback=others,
        stops=stops,
        slower=slower,
        steps=trained,
        cost=_with_term(machines, trained, moves, signed),
        hourly=machines.cost(steps, moves),
        by_hour=machines.cost(trained, moves),
        signed=signed,
        is_term_held=is_held(plan, catalogue),
        moves=moves,
    )


class _Machines(NamedTuple):
    """What is bought, by which all costs of a launch are counted."""

    plan: Plan
    places: tuple[Place, ...]
    others: tuple[Place, ...]
    request: LaunchRequest
    catalogue: Catalogue
    stops: Stops | None

    def cost(
        self, steps: int | None, moves: SpotPriceRange | None, paid_whole: PaidWhole | None = None
    ) -> LaunchCost:
        """Return what so many steps cost; None: it is not known how many they are."""
        plan, step = self.plan, self.plan.step_time_s
        # The price of spot machines may rise while they train, to the top of what was seen.
        top = Decimal(1) if moves is None else Decimal(str(moves.high))
        spot = (one.usd_per_hour * top for one in self.places)
        training = None
        if steps is not None:
            times = {name: steps * getattr(step, name) for name in ("value", "low", "high")}
            training = Estimated(**times, basis=step.basis)
        # Handed over to others, machines are started twice.
        again_s = restart_s() if self.others else 0.0
        return launch_cost(
            training,
            nodes=plan.nodes,
            usd_per_hour=self.places[0].usd_per_hour,
            dearest_usd_per_hour=max(*spot, *(one.usd_per_hour for one in self.others), Decimal(0)),
            billing=self.catalogue.billing_of(plan.offer.provider, plan.offer.instance_type),
            stops=self.stops,
            idle_s=idle_minutes(self.request) * 60.0 + again_s,
            paid_whole=paid_whole,
            controller_usd_per_hour=controller_usd_per_hour(plan, self.request, self.places),
            tax_percent=_tax_percent(plan),
            is_own=plan.offer.is_own,
        )


def _with_term(
    machines: _Machines, steps: int | None, moves: SpotPriceRange | None, signed: Signed | None
) -> LaunchCost:
    """Return what a launch costs with the term that is to be signed for it.

    What is expected is what the estimate said: all of a term that is bought for this job, its share
    of one that other jobs use too. At worst the whole of it is paid either way.
    """
    if signed is None:
        return machines.cost(steps, moves)
    whole = machines.cost(steps, moves, signed.paid_whole)
    if signed.is_for_this_alone:
        return whole
    share = machines.cost(steps, moves)
    return replace(
        share,
        usd_worst=whole.usd_worst,
        hours_worst=whole.hours_worst,
        usd_of_terms=whole.usd_of_terms,
    )


def spot_moves(
    plan: Plan,
    request: LaunchRequest,
    places: Sequence[Place],
    spot_prices: SpotPrices,
    hours: float | None,
) -> SpotPriceRange | None:
    """Return how far the price of a launch's machines moves; None on demand, or not known.

    As the plan says it, where it is bought as planned; else by the prices that were seen where it
    is tried, the highest of those places.
    """
    if not request.buys_spot(plan):
        return None
    job, offer = plan.whole_job, plan.offer
    if offer.purchase == "spot" and job is not None and job.spot_price is not None:
        return job.spot_price
    seen = [
        spot_price_range(spot_prices.get((offer.provider, place, offer.instance_type), {}), hours)
        for place in dict.fromkeys(one.region or "" for one in places)
        if hours is not None
    ]
    return max((one for one in seen if one is not None), key=lambda one: one.high, default=None)


def held_to_terms(held: Orders, machines: Bought) -> Orders:
    """Return orders that end a run before what follows its term costs more than its cap.

    A guard counts hours at one price, that of the term: what is paid of it unused, and what hours
    cost on demand after it, is in how many hours the cap pays for.
    """
    signed, cost, cap_usd = machines.signed, machines.hourly, held.max_cost_usd
    if signed is None or cap_usd is None or cost.hours_expected is None or not held.usd_per_hour:
        return held
    paid_s = cap_usd / held.usd_per_hour * SECONDS_PER_HOUR
    planned_s = cost.hours_expected * SECONDS_PER_HOUR
    usable_s = signed.paid_whole.usable_of_planned_s(paid_s, planned_s=planned_s)
    hours = usable_s / SECONDS_PER_HOUR
    return replace(held, max_hours=min(hours, hours if held.max_hours is None else held.max_hours))


def _tax_percent(plan: Plan) -> Decimal | None:
    percent = plan.offer.tax_percent
    return None if percent is None else Decimal(str(percent))
