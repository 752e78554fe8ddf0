"""A run on spot machines that moves to on-demand ones in time: where, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ....catalog.units import SECONDS_PER_HOUR
from ...plan.parts import Estimated, Stops
from ..expected_run import interval_s
from ..priors import beside_steps
from ..restarts import Conditions
from ..spread import CUT, NORMAL, Spread
from ..stops import as_conditions
from .hand_over import RESTARTS
from .loss import Outcomes, PartLoss

Array = Any
"""numpy array of floats: [cells], and [places] where it says so."""
CELLS, PLACES = 1024, 16
SPREADING = (0.7548776662466927, 0.5698402909980532)
"""1/g and 1/g² of g, the real root of g³ = g + 1."""
STAYING_POINTS, MOVED_POINTS = 8, 2
"""At which what stops cost is taken, of runs that stay on their machines and that move."""
_EDGES = np.arange(PLACES + 1) / PLACES
_MIDDLES = (_EDGES[:-1] + _EDGES[1:]) / 2


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


@dataclass(frozen=True, kw_only=True)
class MixedRun:
    """A run at cells of step times, shares of slow steps and rates: [cells]."""

    plan: Purchase
    steps_s: Array
    """Steps as the rule counts them: at the timed step, with its share of what else takes time."""
    parts: Array
    part_s: Array
    """With its checkpoint, evaluation and slow steps."""
    spot: PartLoss
    on_demand: PartLoss

    @classmethod
    def of(cls, plan: Purchase) -> MixedRun:
        """Return the run of a plan at cells of equal probability."""
        beside = beside_steps(plan.spot.evaluation)
        times = Spread.of(plan.training_s.value, plan.training_s.low, plan.training_s.high)
        slow = Spread.of(1 + beside.value, 1 + beside.low, 1 + beside.high)
        step, others, rate = _scores()
        steps_s = plan.training_s.value * _factors(times, step)
        work_s = steps_s * (1 + beside.value) * _factors(slow, others)
        every_s = interval_s(as_conditions(plan.spot))
        parts = np.maximum(1.0, np.round(work_s / every_s))
        return cls(
            plan=plan,
            steps_s=steps_s * plan.slower,
            parts=parts,
            part_s=work_s / parts + plan.spot.stall_s,
            spot=PartLoss.of(work_s / parts, _at_rates(plan.spot, rate)),
            on_demand=PartLoss.of(work_s / parts, _at_rates(plan.on_demand, rate)),
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

    @property
    def spot_usd(self) -> float:
        """US dollars a second on spot machines; 0 where the price is not known."""
        return (self.plan.spot_usd_per_hour or 0.0) / SECONDS_PER_HOUR

    @property
    def on_demand_usd(self) -> float:
        """The same on demand."""
        return (self.plan.on_demand_usd_per_hour or 0.0) / SECONDS_PER_HOUR

    def outcomes_unmoved(self, loss: PartLoss, usd_per_s: float, which: Array) -> Outcomes:
        """Return what becomes of runs that stay on machines of one purchase, of those `which`."""
        return self._staying(loss, usd_per_s, np.full(self._shape, np.inf), 1.0 * which)

    def outcomes_mixed(self, which: Array) -> Iterator[Outcomes]:
        """Yield what becomes of runs that may move: of those that do not, and of those that do."""
        stays, _ = self._stays(_EDGES)
        bound_s = self._bound_s(np.ones(1))[..., 0]
        yield self._staying(self.spot, self.spot_usd, bound_s, which * stays[..., -1])
        moves = which[..., None] * (stays[..., :-1] - stays[..., 1:])
        left, branches = self._branches(_MIDDLES)
        steady = _with_places(self.on_demand)
        lost_s, chances = steady.points(np.inf, left, MOVED_POINTS)
        for one in branches:
            spot_usd = self.spot_usd * one.spot_s[..., None]
            on_demand_s = one.on_demand_s[..., None] + lost_s
            yield Outcomes(
                elapsed_s=one.moved_s[..., None] + on_demand_s,
                usd=spot_usd + self.on_demand_usd * on_demand_s,
                weights=(moves * one.chance)[..., None] * chances,
            )

    def _staying(
        self, loss: PartLoss, usd_per_s: float, bound_s: Array, weights: Array
    ) -> Outcomes:
        """Return runs that lose no more than a bound and stay, with the weights of them all."""
        whole_s = (self.parts * self.part_s)[..., None]
        lost_s, chances = loss.points(bound_s, self.parts, STAYING_POINTS)
        total = np.maximum(chances.sum(axis=-1), 1e-300)
        unwaited = 1 - (loss.waited_s / loss.mean_s)[..., None]
        return Outcomes(
            elapsed_s=whole_s + lost_s,
            usd=usd_per_s * (whole_s + lost_s * unwaited),
            weights=(weights / total)[..., None] * chances,
        )

    def each_mixed(self) -> tuple[Array, Array, Array, Array]:
        """Return elapsed, spot and on-demand billed, and the chance of the deadline."""
        stays, lost_s = self._stays(_EDGES)
        moves = stays[..., :-1] - stays[..., 1:]
        at = self._moved(_MIDDLES)
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
    def _shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self.steps_s.shape, self.parts.shape, self.spot.mean_s.shape)

    @property
    def _waited(self) -> Array:
        """Share of what stops cost on spot that is waited and not billed."""
        return self.spot.waited_s / self.spot.mean_s

    def _bound_s(self, edges: Array) -> Array:
        """Return what a run may have lost after these shares of its parts that is on spot yet."""
        parts, part_s = self.parts[..., None], self.part_s[..., None]
        steps_s = self.steps_s[..., None] / parts
        done = edges * parts
        free_s = self.plan.deadline_s - RESTARTS * self.plan.slowest_restart_s
        return free_s - steps_s * (parts - done + 1) - done * part_s

    def _stays(self, edges: Array) -> tuple[Array, Array]:
        """Return the chance that it is on spot after these shares of its parts, and its loss."""
        done = edges * self.parts[..., None]
        stays, lost_s = _with_places(self.spot).within(self._bound_s(edges), done)
        stays = np.where(edges == 0, 1.0, stays)
        return np.minimum.accumulate(stays, axis=-1), lost_s

    def _moved(self, edges: Array) -> tuple[Array, Array, Array, Array]:
        """Return the same of a run that moves after these shares of its parts: [..., places]."""
        left, branches = self._branches(edges)
        steady = _with_places(self.on_demand)
        lost_s = left * steady.mean_s
        elapsed_s, spot_s, on_demand_s, chance = (
            sum(one.chance * value for one, value in zip(branches, values, strict=True))
            for values in zip(
                *(
                    (
                        one.moved_s + one.on_demand_s + lost_s,
                        one.spot_s,
                        one.on_demand_s + lost_s,
                        steady.within(self.plan.deadline_s - one.moved_s - one.on_demand_s, left)[
                            0
                        ],
                    )
                    for one in branches
                ),
                strict=True,
            )
        )
        return elapsed_s, spot_s, on_demand_s, chance

    def _branches(self, edges: Array) -> tuple[Array, tuple[_Branch, ...]]:
        """Return the parts that are left of a run that moves after these shares, and how it moves.

        It moves because a part ends too late to be saved in time, or because of a stop: in the wait
        after it, after a restart that ended too late, or in the part that follows, which it saves
        as far as it is. The shares of these are those of what uses up its time.
        """
        parts, part_s = self.parts[..., None], self.part_s[..., None]
        steps_s, spot = self.steps_s[..., None] / parts, _with_places(self.spot)
        restart_s, wait_s = self.plan.spot.restart_s, self.plan.spot.wait_s
        free_s = self.plan.deadline_s - RESTARTS * self.plan.slowest_restart_s
        done = np.floor(edges * parts)
        left = parts - done
        drift_s = np.maximum(part_s - steps_s, 1e-9)
        by_stop = spot.mean_s / (spot.mean_s + drift_s) * (done > 0)
        at_start_s = np.clip(free_s - steps_s * parts, 0.0, part_s)
        unsaved_s = np.where(done > 0, part_s, at_start_s)
        move_s = np.maximum(free_s - steps_s * left, 0.0)
        rest_s = restart_s + left * part_s
        lost_s = move_s - done * part_s
        after = _after_stop(part_s, lost_s - part_s, restart_s, wait_s)
        waited = self._waited[..., None]

        soon_s = np.zeros(())

        def branch(chance: Array, lost_s: Array, late_s: Array, on_demand_s: Array) -> _Branch:
            waited_s = np.maximum(lost_s * waited, 0.0)
            return _Branch(
                chance=chance,
                moved_s=move_s + late_s,
                spot_s=move_s + late_s - waited_s,
                on_demand_s=on_demand_s,
            )

        return left, (
            branch(1 - by_stop, lost_s - unsaved_s, soon_s, rest_s - unsaved_s),
            branch(by_stop * after.in_wait, lost_s, soon_s, rest_s),
            *(
                branch(by_stop * after.late / 2, lost_s, one * after.late_s, rest_s)
                for one in (0.5, 1.5)
            ),
            *(
                branch(by_stop * after.in_part / 2, lost_s - saved_s, soon_s, rest_s - saved_s)
                for saved_s in (
                    after.saved_s[0] + one * (after.saved_s[1] - after.saved_s[0])
                    for one in (0.25, 0.75)
                )
            ),
        )


@dataclass(frozen=True, kw_only=True)
class _AfterStop:
    """How runs move that a stop leaves too little time: arrays [..., places]; shares sum to 1."""

    in_wait: Array
    late: Array
    """After a restart that ended too late."""
    late_s: Array
    """By how much, on average."""
    in_part: Array
    """In the part after a restart that ended in time."""
    saved_s: tuple[Array, Array]
    """Of which so much is done, at the ends of what is about as likely."""


def _after_stop(part_s: Array, spare_s: Array, restart_s: float, wait_s: float) -> _AfterStop:
    """Return where the time of runs ends that had enough for a part before a stop.

    A stop takes what was done of the part, a wait and a restart. What there was above a part is as
    likely any time up to `spare_s`, which a run without a stop has.
    """
    part = part_s[..., None, None]
    done_s = part * np.array([1, 3, 5])[:, None] / 6
    until_s = done_s - wait_s * np.log1p(-np.array([1, 3, 5]) / 6)
    taken_s = until_s + restart_s
    most_s = np.minimum(taken_s, np.maximum(spare_s, 1.0)[..., None, None])
    in_wait_s = np.clip(until_s - part, 0.0, most_s)
    not_in_time_s = np.clip(taken_s - part, 0.0, most_s)
    late_s, in_part_s = not_in_time_s - in_wait_s, most_s - not_in_time_s

    def mean(values: Array) -> Array:
        return values.mean(axis=(-2, -1))

    whole_s, each_late_s = mean(most_s), mean(late_s)
    each_part_s = np.maximum(mean(in_part_s), 1e-9)
    by_s = taken_s - part - (in_wait_s + not_in_time_s) / 2
    return _AfterStop(
        in_wait=mean(in_wait_s) / whole_s,
        late=each_late_s / whole_s,
        late_s=mean(late_s * by_s) / np.maximum(each_late_s, 1e-9),
        in_part=mean(in_part_s) / whole_s,
        saved_s=(
            mean(in_part_s * np.maximum(0.0, part - taken_s)) / each_part_s,
            mean(in_part_s * np.minimum(part, part - taken_s + most_s)) / each_part_s,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Branch:
    """Runs that move to on-demand machines for one reason: arrays [..., places]."""

    chance: Array
    """Of this reason, of those that move there."""
    moved_s: Array
    """Until they are on on-demand machines."""
    spot_s: Array
    """Billed on spot machines."""
    on_demand_s: Array
    """From then on, without what stops cost there."""


@cache
def _scores() -> tuple[Array, Array, Array]:
    """Return where each of three independent normal variables is at all cells: [cells].

    Every value of each is taken once, in an order that spreads over them all (a Kronecker sequence,
    Roberts 2018): whether a run moves hangs on thresholds, which a grid of few values misses.
    """
    place = np.arange(CELLS)
    step = (place + 0.5) / CELLS
    others = (np.argsort(np.argsort((place * one) % 1.0)) for one in SPREADING)
    return tuple(_normal(one) for one in (step, *((rank + 0.5) / CELLS for rank in others)))


def _normal(chances: Array) -> Array:
    return np.array([NORMAL.inv_cdf(float(one)) for one in chances])


def _factors(spread: Spread, z: Array) -> Array:
    return np.exp(z * np.where(z > 0, spread.up, spread.down))


def _at_rates(stops: Stops, z: Array) -> Conditions:
    """Return the conditions at points of equal probability of the rate."""
    spread = Spread.of(stops.per_hour, stops.per_hour_low, stops.per_hour_high)
    rates = stops.per_hour / SECONDS_PER_HOUR * _factors(spread, np.clip(z, -CUT, CUT))
    return replace(as_conditions(stops), rate_per_s=rates)


def _with_places(loss: PartLoss) -> PartLoss:
    """Return it with one more axis at the end."""
    return PartLoss(
        **{
            name: value[..., None] if np.ndim(value) else value
            for name, value in vars(loss).items()
        }
    )
