"""Generated runs of every purchase kind, simulated, and how far the closed form is from that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuplan.planner.cost.bought import slower_than_steps
from gpuplan.planner.goodput.deadline.hand_over import RESTARTS
from gpuplan.planner.goodput.deadline.purchase_mix import Purchase, ways
from gpuplan.planner.goodput.expected_run import expected_run, interval_s
from gpuplan.planner.goodput.priors import beside_steps
from gpuplan.planner.goodput.simulation import (
    Array,
    Deadline,
    Runs,
    Simulated,
    drawn_factors,
    parts_of,
    simulate,
)
from gpuplan.planner.goodput.spread import Spread
from gpuplan.planner.goodput.stop_sources import PoissonStops
from gpuplan.planner.goodput.stops import as_conditions
from gpuplan.planner.plan.parts import Estimated, Stops

HOUR = 3600.0
MOST_STOPS = 30.0
QUANTILES = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)
"""Deadlines at which chances are compared: these quantiles of the simulated times."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run: what is planned, and what its stops come from."""

    training_s: Estimated
    stops: Stops
    failures_per_hour: float
    zones: int
    """0 on demand."""
    saved_chance: float = 0.0
    """That a zone gives notice in time to save the work."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The closed form against the simulation, for one case."""

    case: Case
    mean: float
    """Closed form over simulation, less 1: of the elapsed time, the mean."""
    billed: float
    """The same of the billed time."""
    chance: float
    """Largest difference of the chance to end by a deadline, with its sign."""
    coverage: float
    """Share of the simulated runs in the interval of 80 %."""


def a_case(zones: int, rng: np.random.Generator, *, noticed: bool = False) -> Case:
    """Return a run of 2 hours to 3 months on 1 to 1,024 accelerators, of which spot in `zones`.

    Zones may give notice, which saves the work in 20 to 95 % of the cases.

    Step times are known to ±5 to 30 %; a spot machine goes once in 20 hours to once in 3 months,
    known to a factor of up to 20 below and 10 above.
    """
    failures = 4.4e-5 * np.array([1, 1.2 / 4.4, 12 / 4.4]) * float(2 ** rng.integers(0, 11))
    market = np.zeros(3)
    if zones:
        likely = math.exp(rng.uniform(math.log(5e-4), math.log(0.05)))
        likely = min(likely, 0.1 / zones)
        ends = (1.0, 1 / rng.uniform(1.5, 20), rng.uniform(1.5, 10))
        market = likely * np.array(ends)
    value, low, high = (float(one) for one in failures + zones * market)
    hours = min(math.exp(rng.uniform(math.log(2), math.log(2000))), max(2.0, MOST_STOPS / value))
    down, up = rng.uniform(1.05, 1.3, 2)
    saved_chance = rng.uniform(0.2, 0.95) if noticed and zones else 0.0
    return Case(
        training_s=Estimated(
            value=hours * HOUR, low=hours * HOUR / down, high=hours * HOUR * up, basis="calibrated"
        ),
        stops=Stops(
            per_hour=value,
            per_hour_low=low,
            per_hour_high=high,
            checkpoint_bytes=1e10,
            stall_s=rng.uniform(5, 60),
            restart_s=rng.uniform(600, 2000),
            wait_s=rng.uniform(0, 3600) if zones else 0.0,
            saved_share=saved_chance * (1 - float(failures[0]) / value),
        ),
        failures_per_hour=float(failures[0]),
        zones=zones,
        saved_chance=saved_chance,
    )


def drawn(cases: Sequence[Case], count: int, rng: np.random.Generator) -> tuple[Runs, Array, Array]:
    """Return `count` runs of each case, their steps alone in seconds, and factors of their rates.

    Arrays [cases x count].
    """
    besides = [beside_steps(c.stops.evaluation) for c in cases]
    slow = [Spread.of(1 + one.value, 1 + one.low, 1 + one.high) for one in besides]
    times = [Spread.of(c.training_s.value, c.training_s.low, c.training_s.high) for c in cases]
    known = [
        Spread.of(c.stops.per_hour, c.stops.per_hour_low, c.stops.per_hour_high) for c in cases
    ]
    steps = drawn_factors(times, count, rng, cut=np.inf)
    likely = np.array([[1 + one.value] for one in besides])
    others = likely * drawn_factors(slow, count, rng, cut=np.inf)
    rates = drawn_factors(known, count, rng)
    steps_s = np.array([[c.training_s.value] for c in cases]) * steps
    work_s = steps_s * others
    every_s = np.array([[interval_s(as_conditions(c.stops))] for c in cases])
    return (
        Runs(
            work_s=work_s.ravel(),
            segments=parts_of(work_s, every_s).ravel(),
            stall_s=repeated([c.stops.stall_s for c in cases], count),
            restart_s=repeated([c.stops.restart_s for c in cases], count),
        ),
        steps_s.ravel(),
        rates.ravel(),
    )


def simulated(
    cases: Sequence[Case], count: int, rng: np.random.Generator, **bills: float
) -> Simulated:
    """Return what becomes of `count` runs of each case; arrays [cases x count].

    `bills` are `begun_s` and `increment_s` of `Runs`.
    """
    runs, _, factors = drawn(cases, count, rng)
    runs = replace(runs, **bills)
    wait_s = repeated([c.stops.wait_s for c in cases], count)
    rates = rates_of(cases, count) * factors
    return simulate(runs, PoissonStops(rates, wait_s, rng, saved_chances(cases, count)), rng)


def saved_chances(cases: Sequence[Case], count: int) -> Array | None:
    """Return the chances that a notice saves the work, [cases x count]; None where none does."""
    chances = [one.saved_chance for one in cases]
    return repeated(chances, count) if any(chances) else None


def rates_of(cases: Sequence[Case], count: int) -> Array:
    """Return the likely rates per second of failures and of each zone: [sources, cases x count]."""
    sources = [[c.failures_per_hour for c in cases]]
    for zone in range(max(c.zones for c in cases)):
        sources.append(
            [
                (c.stops.per_hour - c.failures_per_hour) / c.zones if zone < c.zones else 0.0
                for c in cases
            ]
        )
    return np.array([repeated(one, count) for one in sources]) / HOUR


def compared(cases: Sequence[Case], count: int, rng: np.random.Generator) -> list[Compared]:
    """Return the closed form against the simulation, for every case."""
    found = simulated(cases, count, rng)
    elapsed_s = found.elapsed_s.reshape(len(cases), count)
    billed_s = found.billed_s.reshape(len(cases), count)
    return [
        _compared(case, one_s, paid_s)
        for case, one_s, paid_s in zip(cases, elapsed_s, billed_s, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """The mix of spot and on demand against the simulation, for one plan."""

    plan: Purchase
    elapsed: float
    """Closed form over simulation, less 1."""
    usd: float
    """The same of what is billed, where on-demand machines cost 2.5 times as much."""
    chance: float
    """Difference of the chance of the deadline."""
    moved: float
    """Share of the simulated runs that moved."""
    hours_within: float
    """Share of the simulated runs in the interval of 80 % of the time."""
    usd_within: float
    """The same of the dollars."""


SPOT_USD, ON_DEMAND_USD = 1.0, 2.5
SLOWEST_S = 1920.0
"""As startup.toml has it."""


def compared_mixes(
    cases: Sequence[Case], count: int, rng: np.random.Generator, *, as_launched: bool = False
) -> list[Mixed]:
    """Return the mix against the simulation, with a deadline drawn for every case on spot.

    The rule counts the steps that are left, or as a launch does, with what else takes time.
    """
    plans = [a_purchase(case, rng, as_launched=as_launched) for case in cases]
    runs, steps_s, factors = drawn(cases, count, rng)
    rates = rates_of(cases, count) * factors
    begins = repeated(
        [p.deadline_s >= RESTARTS * SLOWEST_S + p.training_s.high * p.slower for p in plans], count
    ).astype(bool)
    # What begins on demand stays there.
    deadline_s = np.where(begins, repeated([p.deadline_s for p in plans], count), 1e15)
    deadline = Deadline(
        deadline_s=deadline_s,
        slowest_restart_s=np.full_like(deadline_s, SLOWEST_S),
        steps_s=steps_s * repeated([p.slower for p in plans], count),
        failure_per_s=rates[0],
    )
    rates[1:] *= begins
    wait_s = repeated([c.stops.wait_s for c in cases], count) * begins
    stopping = PoissonStops(rates, wait_s, rng, saved_chances(cases, count))
    found = simulate(runs, stopping, rng, deadline)
    usd = np.where(begins, SPOT_USD, ON_DEMAND_USD) * found.spot_s
    usd += ON_DEMAND_USD * found.on_demand_s
    moved = found.on_demand_s > 0
    by_case = (one.reshape(len(plans), count) for one in (found.elapsed_s, usd / HOUR, moved))
    return [_mixed(*one) for one in zip(plans, *by_case, strict=True)]


def a_purchase(case: Case, rng: np.random.Generator, *, as_launched: bool = False) -> Purchase:
    """Return how a case on spot may be bought, with a deadline from just too near to begin so."""
    spot = case.stops
    share = case.failures_per_hour / spot.per_hour
    on_demand = Stops(
        per_hour=case.failures_per_hour,
        per_hour_low=spot.per_hour_low * share,
        per_hour_high=spot.per_hour_high * share,
        checkpoint_bytes=spot.checkpoint_bytes,
        stall_s=spot.stall_s,
        restart_s=spot.restart_s,
        wait_s=0.0,
    )
    slower = slower_than_steps(on_demand, case.training_s.value) if as_launched else 1.0
    return Purchase(
        training_s=case.training_s,
        spot=spot,
        on_demand=on_demand,
        slower=slower,
        spot_usd_per_hour=SPOT_USD,
        on_demand_usd_per_hour=ON_DEMAND_USD,
        deadline_s=case.training_s.high * slower * rng.uniform(0.98, 1.4) + RESTARTS * SLOWEST_S,
        slowest_restart_s=SLOWEST_S,
    )


def _mixed(plan: Purchase, elapsed_s: Array, usd: Array, moved: Array) -> Mixed:
    mix = ways(plan).mix
    assert mix.usd is not None and mix.usd_ends is not None
    return Mixed(
        plan=plan,
        elapsed=mix.elapsed_s / float(elapsed_s.mean()) - 1,
        usd=mix.usd / float(usd.mean()) - 1,
        chance=mix.deadline_chance - float((elapsed_s <= plan.deadline_s).mean()),
        moved=float(moved.mean()),
        hours_within=_within(elapsed_s, mix.elapsed_ends_s),
        usd_within=_within(usd, mix.usd_ends),
    )


def _within(drawn: Array, ends: tuple[float, float]) -> float:
    return float(((drawn >= ends[0]) & (drawn <= ends[1])).mean())


def repeated(values: Sequence[float], count: int) -> Array:
    """Return each value `count` times, [values x count]."""
    return np.repeat(np.array(values, dtype=float), count)


def _compared(case: Case, elapsed_s: Array, billed_s: Array) -> Compared:
    run = expected_run(case.training_s, case.stops)
    off = [
        run.chance_within(float(at)) - float((elapsed_s <= at).mean())
        for at in np.quantile(elapsed_s, QUANTILES)
    ]
    within = (elapsed_s >= run.low_s) & (elapsed_s <= run.high_s)
    return Compared(
        case=case,
        mean=run.elapsed_s / float(elapsed_s.mean()) - 1,
        billed=run.billed_s / float(billed_s.mean()) - 1,
        chance=max(off, key=abs),
        coverage=float(within.mean()),
    )
