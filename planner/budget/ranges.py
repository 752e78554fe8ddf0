"""How sure the sums of a project are: a seeded simulation of what every experiment costs.

The error of a prediction has a part that all experiments share (software, way of working: where one
takes longer, all do) and a part of its own (`data/budget.toml`), which is that of a model on its
machines: runs of one workload by one plan share it too, however a project divides them. So highs
are never added up, and do not cancel out as if they were independent. Failed runs are drawn with
their own chance. What is bought by the month or once has no spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from ..cost.run_cost import CENT
from ..goodput.spread import CUT, Spread
from ..predict.measured.known_runs import run_key
from .ledger import Books, total_usd
from .planned import PlannedRuns, RunCostOf
from .project.defaults import default
from .project.months import Month
from .report.rows import Entry, MoneyRange, OptionName
from .taxed_rows import taxed_rows

DRAWS = 4000
SEED = 1
PERCENTS = (10, 50, 90)
ROUNDING_USD = 0.01
"""By so much an amount may be off: it and its tax are each rounded to a cent."""

Array = Any
"""numpy array of US dollars."""


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Simulated costs: one row for each draw."""

    by_experiment: dict[str, Array]
    """Name of planned runs → [draws]."""
    until_month: Array
    """[draws, months]: everything spent until the end of each month, cumulative."""
    fixed_usd: float
    """What belongs to no experiment."""

    def of_project(self, usd: Decimal, *, lower_bound: bool = False) -> MoneyRange:
        """Return the range of the project's total, whose planned sum is `usd`."""
        draws = sum(self.by_experiment.values(), np.full(DRAWS, self.fixed_usd))
        return money_range(usd, draws, lower_bound=lower_bound)

    def of_experiment(self, name: str, usd: Decimal, *, lower_bound: bool = False) -> MoneyRange:
        """Return the range of an experiment's total, whose planned sum is `usd`."""
        draws = self.by_experiment.get(name, np.zeros(1))
        return money_range(usd, draws, lower_bound=lower_bound)


def simulate(
    books: Books, entries: Sequence[Entry], months: Sequence[Month], *, seed: int = SEED
) -> Ranges:
    """Return what every experiment costs in `DRAWS` draws.

    Args:
        books: the project and its runs.
        entries: its ledger.
        months: every month that a row falls into, in order.
        seed: of the random numbers; the same seed gives the same ranges.
    """
    random = np.random.default_rng(seed)
    shared = random.standard_normal(DRAWS)
    share = default("shared_error")[0]
    position = {month: i for i, month in enumerate(months)}
    until = np.zeros((DRAWS, len(months)))
    by_experiment: dict[str, Array] = {}
    own: dict[str, Array] = {}
    for one in books.planned:
        rows = [row for row in entries if row.experiment == one.name]
        key = error_key(one, books.option)
        if key not in own:
            own[key] = random.standard_normal(DRAWS)
        z = math.sqrt(share) * shared + math.sqrt(1 - share) * own[key]
        factor = _factors(_spread(one.chosen(books.option)), z)
        tries = one.runs * one.spec.times
        again = _failures(random, tries, one.repeated)
        cost = np.zeros(DRAWS)
        for row, taxed_usd in taxed_rows(rows):
            usd = float(taxed_usd)
            if row.kind == "retries":
                drawn = usd * factor * again
            elif row.kind in ("storage", "commitment"):
                drawn = np.full(DRAWS, usd)
            else:
                drawn = usd * factor
            cost += drawn
            until[:, position[row.month]] += drawn
        by_experiment[one.name] = cost
    fixed = [row for row in entries if row.experiment is None]
    for row in fixed:
        until[:, position[row.month]] += float(row.usd)
    return Ranges(
        by_experiment=by_experiment,
        until_month=np.cumsum(until, axis=1),
        fixed_usd=float(total_usd(fixed)),
    )


def money_range(usd: Decimal, draws: Array, *, lower_bound: bool = False) -> MoneyRange:
    """Return a planned sum with the 10th, 50th and 90th percentile of its draws, to the cent.

    Args:
        usd: the sum.
        draws: of it.
        lower_bound: whether a part of it has no known price, and is in none of them.
    """
    low, middle, high = (
        Decimal(float(one)).quantize(CENT) for one in np.percentile(draws, PERCENTS)
    )
    return MoneyRange(usd=usd, p10_usd=low, p50_usd=middle, p90_usd=high, lower_bound=lower_bound)


def error_key(one: PlannedRuns, option: OptionName | None = None) -> str:
    """Return what planned runs must share for the error of one to be the other's.

    The files, params and inputs of their model, the machines and the layout; of runs whose model is
    not known, their name.
    """
    plan = one.chosen(option).plan
    if plan is None or one.workload is None:
        return one.name
    return f"{one.workload} {run_key(plan)}"


def high_factor(cost: RunCostOf, *, shared_only: bool = True) -> tuple[float, float]:
    """Return by what a run's cost is multiplied at the ends of 80 % of the error.

    Args:
        cost: of a run.
        shared_only: whether only the part moves that all experiments share.
    """
    spread = _spread(cost)
    share = default("shared_error")[0]
    z = 1.2816 * math.sqrt(share if shared_only else 1 - share)
    return spread.factor(-z), spread.factor(z)


def _spread(cost: RunCostOf) -> Spread:
    """Return the spread of what a run costs: that of its dollars, as far as cents tell it.

    Many runs are as uncertain as each, so that a cent of rounding must not count as doubt: within
    what rounding leaves open, the hours decide, which are not rounded.
    """
    if cost.usd is None or cost.usd_low is None or cost.usd_high is None or cost.hours <= 0:
        return Spread(0.0, 0.0)
    usd = float(cost.usd)
    low = _ratio(float(cost.usd_low), usd, cost.hours_low / cost.hours)
    high = _ratio(float(cost.usd_high), usd, cost.hours_high / cost.hours)
    return Spread.of(1.0, min(low, 1.0), max(high, 1.0))


def _ratio(end_usd: float, usd: float, of_hours: float) -> float:
    """Return the ratio of hours, or the nearest to it that two amounts in cents may have."""
    least = (end_usd - ROUNDING_USD) / (usd + ROUNDING_USD)
    most = math.inf if usd <= ROUNDING_USD else (end_usd + ROUNDING_USD) / (usd - ROUNDING_USD)
    return min(max(of_hours, least), most)


def _factors(spread: Spread, z: Array) -> Array:
    """Return `Spread.factor` of an array."""
    z = np.clip(z, -CUT, CUT)
    return np.exp(z * np.where(z > 0, spread.up, spread.down))


def _failures(random: np.random.Generator, runs: int, repeated: float) -> Array:
    """Return failed attempts over those expected: f / (1 - f) for each run on average; [draws]."""
    if not repeated:
        return np.ones(DRAWS)
    failed_share = repeated / (1 + repeated)
    return random.negative_binomial(runs, 1 - failed_share, DRAWS) / (runs * repeated)
