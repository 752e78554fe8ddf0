"""Spot, on-demand, and spot that moves to on-demand machines before a deadline, for one plan.

The mix follows the launcher's rule (`hand_over.py`): a run stays on spot machines while there is
time for one more loss of them. What stops have cost so far only grows, and what they may cost only
shrinks; so the chance that a run is still on spot machines after some parts is that of a loss below
the bound there. From it follow the moment of the move, and what is left then. Against a simulation:
docs/real-cost.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...catalog.units import SECONDS_PER_HOUR
from ..plan.parts import Estimated, Stops
from .expected_run import expected_run, interval_s
from .hand_over import RESTARTS, gains_by_moving, stays_on_spot
from .loss import PartLoss
from .priors import beside_steps
from .restarts import Conditions
from .spread import RATE_POINTS, Spread, normal_points
from .stops import as_conditions

Array = Any
"""numpy array of floats: [step times, slow steps, rates], and [places] where it says so."""
STEP_POINTS, SLOW_POINTS, PLACES = 32, 5, 16


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


@dataclass(frozen=True, kw_only=True)
class Ways:
    """A plan bought in three ways."""

    spot: Way
    on_demand: Way
    mix: Way
    over_closed: float
    """The mean time on spot as the mix sums it, at points of the step time, over that of `spot`, in
    closed form: by so much the times of `mix` are off beside those of the others."""


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """What a plan's run is, and what it can be bought as."""

    training_s: Estimated
    """Steps alone."""
    spot: Stops
    on_demand: Stops
    spot_usd_per_hour: float | None
    """All nodes; None where it is not known."""
    on_demand_usd_per_hour: float | None
    deadline_s: float
    """From the first step."""
    slowest_restart_s: float
    """The slowest start of machines, for which the rule keeps time."""
    slower: float = 1.0
    """What the rule counts for every second of the steps that are left (`cost/bought.py`)."""


def ways(plan: Purchase) -> Ways:
    """Return what a plan takes, costs and risks on spot, on demand, and as the launcher mixes them.

    Time and cost on spot and on demand are those of `expected_run`; those of the mix are summed at
    points of the step time, since they depend on it by the deadline.
    """
    on_spot = expected_run(plan.training_s, plan.spot)
    steady = expected_run(plan.training_s, plan.on_demand)
    run = _Mixed.of(plan)
    return Ways(
        over_closed=run.unmoved(run.spot)[0] / on_spot.elapsed_s,
        spot=_way(
            plan, on_spot.elapsed_s, on_spot.billed_s, 0.0, on_spot.chance_within(plan.deadline_s)
        ),
        on_demand=_way(
            plan, steady.elapsed_s, 0.0, steady.billed_s, steady.chance_within(plan.deadline_s)
        ),
        mix=_mix(plan, run),
    )


def _way(plan: Purchase, elapsed_s: float, spot_s: float, on_demand_s: float, chance: float) -> Way:
    return Way(
        elapsed_s=elapsed_s,
        spot_s=spot_s,
        on_demand_s=on_demand_s,
        usd=_usd(plan, spot_s, on_demand_s),
        deadline_chance=chance,
    )


def _usd(plan: Purchase, spot_s: float, on_demand_s: float) -> float | None:
    bills = ((spot_s, plan.spot_usd_per_hour), (on_demand_s, plan.on_demand_usd_per_hour))
    paid = [(seconds, price) for seconds, price in bills if seconds > 0]
    if any(price is None for _, price in paid):
        return None
    return sum(seconds / SECONDS_PER_HOUR * (price or 0.0) for seconds, price in paid)


def _mix(plan: Purchase, run: _Mixed) -> Way:
    begins_on_spot = stays_on_spot(
        plan.deadline_s,
        saved_rest_s=plan.training_s.high * plan.slower,
        slowest_restart_s=plan.slowest_restart_s,
    )
    if not begins_on_spot:
        steady = run.unmoved(run.on_demand)
        return _way(plan, steady[0], 0.0, steady[1], steady[2])
    moves = gains_by_moving(
        plan.deadline_s, rest_s=run.steps_s, slowest_restart_s=plan.slowest_restart_s
    )
    stuck, mixed = run.each_unmoved(run.spot), run.each_mixed()
    stuck_parts = (stuck[0], stuck[1], 0.0, stuck[2])
    means = [np.mean(np.where(moves, a, b)) for a, b in zip(mixed, stuck_parts, strict=True)]
    elapsed_s, spot_s, on_demand_s, chance = (float(one) for one in means)
    return _way(plan, elapsed_s, spot_s, on_demand_s, chance)


@dataclass(frozen=True, kw_only=True)
class _Mixed:
    """A run at every step time, share of slow steps and rate: arrays that broadcast."""

    plan: Purchase
    steps_s: Array
    """Steps as the rule counts them: at the timed step, with its share of what else takes time."""
    parts: Array
    part_s: Array
    """With its checkpoint, evaluation and slow steps."""
    spot: PartLoss
    on_demand: PartLoss

    @classmethod
    def of(cls, plan: Purchase) -> _Mixed:
        """Return the run of a plan at points of equal probability."""
        beside = beside_steps(plan.spot.evaluation)
        times = Spread.of(plan.training_s.value, plan.training_s.low, plan.training_s.high)
        slow = Spread.of(1 + beside.value, 1 + beside.low, 1 + beside.high)
        steps_s = plan.training_s.value * _points(times, STEP_POINTS)[:, None, None]
        work_s = steps_s * (1 + beside.value) * _points(slow, SLOW_POINTS)[:, None]
        every_s = interval_s(as_conditions(plan.spot))
        parts = np.maximum(1.0, np.round(work_s / every_s))
        return cls(
            plan=plan,
            steps_s=steps_s * plan.slower,
            parts=parts,
            part_s=work_s / parts + plan.spot.stall_s,
            spot=PartLoss.of(work_s / parts, _at_rates(plan.spot)),
            on_demand=PartLoss.of(work_s / parts, _at_rates(plan.on_demand)),
        )

    def each_unmoved(self, loss: PartLoss) -> tuple[Array, Array, Array]:
        """Return elapsed, billed and the chance of the deadline on machines of one purchase."""
        whole_s = self.parts * self.part_s
        chance, _ = loss.within(self.plan.deadline_s - whole_s, self.parts)
        elapsed_s = whole_s + self.parts * loss.mean_s
        return elapsed_s, elapsed_s - self.parts * loss.waited_s, chance

    def unmoved(self, loss: PartLoss) -> tuple[float, float, float]:
        """Return the means of the same."""
        elapsed_s, billed_s, chance = (float(np.mean(one)) for one in self.each_unmoved(loss))
        return elapsed_s, billed_s, chance

    def each_mixed(self) -> tuple[Array, Array, Array, Array]:
        """Return elapsed, spot and on-demand billed, and the chance of the deadline."""
        edges = np.arange(PLACES + 1) / PLACES
        stays, lost_s = self._stays(edges)
        moves = stays[..., :-1] - stays[..., 1:]
        at = self._moved((edges[:-1] + edges[1:]) / 2)
        kept, kept_lost_s = stays[..., -1], lost_s[..., -1]
        unwaited = 1 - self._waited
        whole_s = self.parts * self.part_s
        elapsed_s, spot_s, on_demand_s, chance = ((moves * one).sum(axis=-1) for one in at)
        return (
            elapsed_s + kept * whole_s + kept_lost_s,
            spot_s + kept * whole_s + kept_lost_s * unwaited,
            on_demand_s,
            chance + kept,
        )

    @property
    def _waited(self) -> Array:
        """Share of what stops cost on spot that is waited and not billed."""
        return self.spot.waited_s / self.spot.mean_s

    def _stays(self, edges: Array) -> tuple[Array, Array]:
        """Return the chance that it is on spot after these shares of its parts, and its loss."""
        parts, part_s = self.parts[..., None], self.part_s[..., None]
        steps_s = self.steps_s[..., None] / parts
        done = edges * parts
        free_s = self.plan.deadline_s - RESTARTS * self.plan.slowest_restart_s
        bound_s = free_s - steps_s * (parts - done + 1) - done * part_s
        stays, lost_s = _with_places(self.spot).within(bound_s, done)
        stays = np.where(edges == 0, 1.0, stays)
        return np.minimum.accumulate(stays, axis=-1), lost_s

    def _moved(self, edges: Array) -> tuple[Array, Array, Array, Array]:
        """Return the same of a run that moves after these shares of its parts: [..., places].

        It moves because a part ends too late to be saved in time, or in a wait, or after a restart
        that ended too late; the shares of these are those of what uses up its time. On average a
        restart that ends too late does so by half of it.
        """
        parts, part_s = self.parts[..., None], self.part_s[..., None]
        steps_s, spot = self.steps_s[..., None] / parts, _with_places(self.spot)
        restart_s, wait_s = self.plan.spot.restart_s, self.plan.spot.wait_s
        free_s = self.plan.deadline_s - RESTARTS * self.plan.slowest_restart_s
        done = np.floor(edges * parts)
        left = parts - done
        drift_s = np.maximum(part_s - steps_s, 1e-9)
        by_stop = spot.mean_s / (spot.mean_s + drift_s) * (done > 0)
        by_restart = by_stop * restart_s / (restart_s + wait_s)
        at_start_s = np.clip(free_s - steps_s * parts, 0.0, part_s)
        unsaved_s = np.where(done > 0, part_s, at_start_s)
        move_s = np.maximum(free_s - steps_s * left, 0.0)
        late_s = by_restart * restart_s / 2
        waited_s = (move_s - done * part_s - (1 - by_stop) * unsaved_s) * self._waited[..., None]
        steady = _with_places(self.on_demand)
        rest_s = restart_s + left * part_s
        on_demand_s = rest_s - (1 - by_stop) * unsaved_s + left * steady.mean_s
        spare_s = self.plan.deadline_s - move_s - rest_s
        chance = (
            (1 - by_stop) * steady.within(spare_s + unsaved_s, left)[0]
            + (by_stop - by_restart) * steady.within(spare_s, left)[0]
            + by_restart * steady.within(spare_s - restart_s / 2, left)[0]
        )
        elapsed_s = move_s + late_s + on_demand_s
        return elapsed_s, move_s + late_s - np.maximum(waited_s, 0.0), on_demand_s, chance


def _points(spread: Spread, count: int) -> Array:
    z = np.array(normal_points(count))
    return np.exp(z * np.where(z > 0, spread.up, spread.down))


def _at_rates(stops: Stops) -> Conditions:
    """Return the conditions at points of equal probability of the rate."""
    spread = Spread.of(stops.per_hour, stops.per_hour_low, stops.per_hour_high)
    rates = stops.per_hour / SECONDS_PER_HOUR * np.array([*spread.points(RATE_POINTS)])
    return replace(as_conditions(stops), rate_per_s=rates)


def _with_places(loss: PartLoss) -> PartLoss:
    """Return it with one more axis at the end."""
    return PartLoss(
        **{
            name: value[..., None] if np.ndim(value) else value
            for name, value in vars(loss).items()
        }
    )
