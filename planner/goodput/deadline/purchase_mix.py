"""Spot, on-demand, and spot that moves to on-demand machines before a deadline, for one plan.

The mix follows the launcher's rule (`hand_over.py`): a run stays on spot machines while there is
time for one more loss of them. What stops have cost so far only grows, and what they may cost only
shrinks; so the chance that a run is still on spot machines after some parts is that of a loss below
the bound there. From it follow the moment of the move, and what is left then. Against a simulation:
docs/real-cost.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....catalog.units import SECONDS_PER_HOUR
from ..expected_run import ExpectedRun, expected_run
from .hand_over import gains_by_moving, stays_on_spot
from .loss import Outcomes, ends_of
from .mixed_run import MixedRun
from .mixed_run import Purchase as Purchase


@dataclass(frozen=True, kw_only=True)
class Way:
    """A plan bought in one way, from its first step to its last; means."""

    elapsed_s: float
    spot_s: float
    """Billed on spot machines."""
    on_demand_s: float
    """Billed on on-demand machines."""
    usd: float | None
    """None where a price that it needs is not known."""
    deadline_chance: float
    elapsed_ends_s: tuple[float, float]
    """The ends of 80 % of the whole, with the mean between them."""
    usd_ends: tuple[float, float] | None
    """The same of the dollars; None where a price is not known."""


@dataclass(frozen=True, kw_only=True)
class Ways:
    """A plan bought in three ways."""

    spot: Way
    on_demand: Way
    mix: Way
    over_closed: float
    """The mean time on spot as the mix sums it, at points of the step time, over that of `spot`, in
    closed form: by so much the times of `mix` are off beside those of the others."""


def ways(plan: Purchase) -> Ways:
    """Return what a plan takes, costs and risks on spot, on demand, and as the launcher mixes them.

    Time and cost on spot and on demand are those of `expected_run`; those of the mix are summed at
    points of the step time, since they depend on it by the deadline.
    """
    on_spot = expected_run(plan.training_s, plan.spot)
    steady = expected_run(plan.training_s, plan.on_demand)
    run = MixedRun.of(plan)
    return Ways(
        over_closed=run.unmoved(run.spot)[0] / on_spot.elapsed_s,
        spot=_of_one(plan, on_spot, plan.spot_usd_per_hour, is_spot=True),
        on_demand=_of_one(plan, steady, plan.on_demand_usd_per_hour, is_spot=False),
        mix=_mix(plan, run),
    )


def _of_one(plan: Purchase, run: ExpectedRun, price: float | None, *, is_spot: bool) -> Way:
    """Return a run on machines of one purchase; of waits the mean share is not billed."""
    share = run.billed_s / run.elapsed_s / SECONDS_PER_HOUR
    low_s, high_s = run.ends_s
    spot_s, on_demand_s = (run.billed_s, 0.0) if is_spot else (0.0, run.billed_s)
    return Way(
        elapsed_s=run.elapsed_s,
        spot_s=spot_s,
        on_demand_s=on_demand_s,
        usd=_usd(plan, spot_s, on_demand_s),
        deadline_chance=run.chance_within(plan.deadline_s),
        elapsed_ends_s=(low_s, high_s),
        usd_ends=None if price is None else (low_s * share * price, high_s * share * price),
    )


def _usd(plan: Purchase, spot_s: float, on_demand_s: float) -> float | None:
    bills = ((spot_s, plan.spot_usd_per_hour), (on_demand_s, plan.on_demand_usd_per_hour))
    paid = [(seconds, price) for seconds, price in bills if seconds > 0]
    if any(price is None for _, price in paid):
        return None
    return sum(seconds / SECONDS_PER_HOUR * (price or 0.0) for seconds, price in paid)


def _mix(plan: Purchase, run: MixedRun) -> Way:
    begins_on_spot = stays_on_spot(
        plan.deadline_s,
        saved_rest_s=plan.training_s.high * plan.slower,
        slowest_restart_s=plan.slowest_restart_s,
    )
    if not begins_on_spot:
        steady = run.unmoved(run.on_demand)
        found = run.outcomes_unmoved(run.on_demand, run.on_demand_usd, np.ones_like(run.steps_s))
        return _summed(plan, (steady[0], 0.0, steady[1], steady[2]), [found])
    moves = gains_by_moving(
        plan.deadline_s, rest_s=run.steps_s, slowest_restart_s=plan.slowest_restart_s
    )
    stuck, mixed = run.each_unmoved(run.spot), run.each_mixed()
    stuck_parts = (stuck[0], stuck[1], 0.0, stuck[2])
    means = [np.mean(np.where(moves, a, b)) for a, b in zip(mixed, stuck_parts, strict=True)]
    outcomes = [
        run.outcomes_unmoved(run.spot, run.spot_usd, ~moves),
        *run.outcomes_mixed(moves * np.ones_like(run.steps_s)),
    ]
    return _summed(plan, tuple(float(one) for one in means), outcomes)


def _summed(plan: Purchase, means: tuple[float, ...], outcomes: Sequence[Outcomes]) -> Way:
    """Return a way from its means and from what may become of it."""
    elapsed_s, spot_s, on_demand_s, chance = means
    usd = _usd(plan, spot_s, on_demand_s)
    ends_s = ends_of([(one.elapsed_s, one.weights) for one in outcomes])
    ends_usd = None
    if usd is not None:
        low, high = ends_of([(one.usd, one.weights) for one in outcomes])
        ends_usd = min(low, usd), max(high, usd)
    return Way(
        elapsed_s=elapsed_s,
        spot_s=spot_s,
        on_demand_s=on_demand_s,
        usd=usd,
        deadline_chance=chance,
        elapsed_ends_s=(min(ends_s[0], elapsed_s), max(ends_s[1], elapsed_s)),
        usd_ends=ends_usd,
    )
