"""How the machines of a launch are bought, what stops them, and what the launch costs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from ....catalog.snapshot import Catalogue
from ....catalog.types import Accelerator
from ....planner.cost.bought import slower_than_steps, stops_bought
from ....planner.cost.launch_cost import LaunchCost, launch_cost
from ....planner.goodput.own_stops import NO_OWN_STOPS, OwnStops
from ....planner.plan.parts import SpotPriceRange
from ....planner.plan.plan import Estimated, Plan, Stops
from ...skypilot.placement import Place
from ..plan_choice import tried
from ..request import LaunchRequest
from ..task.guard_config import restart_s, smoke_steps, total_steps
from ..task.task import idle_minutes
from .controller import controller_usd_per_hour
from .deadline import bought_in_time, fallback


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
    whole: LaunchCost
    """Of the whole plan."""


def bought(
    plan: Plan,
    request: LaunchRequest,
    catalogue: Catalogue,
    *,
    now: datetime,
    own_stops: OwnStops = NO_OWN_STOPS,
) -> Bought:
    """Return where and how a plan is bought.

    Args:
        plan: what is launched.
        request: how.
        catalogue: today's prices, accelerators and providers.
        now: the time, for the deadline.
        own_stops: what stopped the user's own launches.

    Raises:
        UsageError: what is asked for contradicts the plan.
        PriceError: a price is not known.
    """
    accelerator = catalogue.accelerators.get(plan.offer.accelerator)
    steady = stops_bought(plan, accelerator, "on-demand", own_stops)
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
    )
    steps = total_steps(plan, request)
    trained = min(steps, smoke_steps()) if steps and request.guard.smoke else steps

    def cost(of: int | None) -> LaunchCost:
        return _cost(plan, of, places, others, request, catalogue, stops)

    return Bought(
        request=request,
        late=tuple(late),
        accelerator=accelerator,
        places=places,
        fallback=others,
        stops=stops,
        slower=slower,
        steps=trained,
        cost=cost(trained),
        whole=cost(steps),
    )


def _cost(
    plan: Plan,
    steps: int | None,
    places: tuple[Place, ...],
    others: tuple[Place, ...],
    request: LaunchRequest,
    catalogue: Catalogue,
    stops: Stops | None,
) -> LaunchCost:
    step = plan.step_time_s
    moves = spot_moves(plan, request)
    # The price of spot machines may rise while they train, to the top of what was seen.
    top = Decimal(1) if moves is None else Decimal(str(moves.high))
    prices = [*(one.usd_per_hour * top for one in places), *(one.usd_per_hour for one in others)]
    training = None
    if steps is not None:
        training = Estimated(
            value=steps * step.value,
            low=steps * step.low,
            high=steps * step.high,
            basis=step.basis,
        )
    return launch_cost(
        training,
        nodes=plan.nodes,
        usd_per_hour=places[0].usd_per_hour,
        dearest_usd_per_hour=max(prices),
        billing=catalogue.providers.get(plan.offer.provider),
        stops=stops,
        # Handed over to others, machines are started twice.
        idle_s=idle_minutes(request) * 60.0 + (restart_s() if others else 0.0),
        controller_usd_per_hour=controller_usd_per_hour(plan, request, places),
        tax_percent=_tax_percent(plan),
    )


def spot_moves(plan: Plan, request: LaunchRequest) -> SpotPriceRange | None:
    """Return how far the price of a launch's machines moves; None on demand, or not known."""
    job = plan.whole_job
    return job.spot_price if job is not None and request.buys_spot(plan) else None


def _tax_percent(plan: Plan) -> Decimal | None:
    percent = plan.offer.tax_percent
    return None if percent is None else Decimal(str(percent))
