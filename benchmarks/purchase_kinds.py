"""How near expected hours and dollars are to simulated runs, for each way to buy machines.

python benchmarks/purchase_kinds.py [--cases 500] [--draws 4000]

Prints the table of docs/real-cost.md, whose figures are the worst of all cases of a kind. A minute
and a half of one core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.blocks import block_days, block_lost_s
from gpuplan.catalog.units import HOURS_PER_DAY, HOURS_PER_YEAR, SECONDS_PER_HOUR
from gpuplan.planner.cost.launch_cost import LaunchCost, launch_cost
from gpuplan.planner.cost.paid_whole import PaidWhole
from gpuplan.planner.cost.start_up import start_up_s

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from simulated_runs import (
    MOST_STOPS,
    Case,
    a_case,
    compared,
    compared_mixes,
    simulated,
)

Rng = np.random.Generator
BATCH = 125
"""Cases that are simulated together: what fits the memory."""
FILLED = (0.3, 1.6)
"""Shares of one term that runs of a commitment take, which is bought for them alone."""
ON_DEMAND_OVER_TERM = {1: Decimal("1.6"), 3: Decimal("2.2")}
"""What an hour on demand costs over one of a term of so many years. Of the catalogue's terms, which
are Google Cloud's, 1.44 to 1.60 of one year and 2.2 to 2.95 of three."""
TAIL = 0.1
"""Share of the runs beyond each end of an interval of 80 %."""
CLOSE, CENT_USD = 1e-5, 0.01
"""Dollars that are the same: a bill is rounded to a cent, and a simulated one is not."""
HEAD = "| kind | hours | dollars | chance of a deadline, points | in the 80 % interval |"
KINDS: dict[str, Callable[[Rng], Case]] = {
    "on demand": lambda rng: a_case(0, rng),
    "spot, one zone": lambda rng: a_case(1, rng),
    "spot, 2 to 5 zones": lambda rng: a_case(int(rng.integers(2, 6)), rng),
    "spot, with notice": lambda rng: a_case(int(rng.integers(1, 6)), rng, noticed=True),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--draws", type=int, default=4000)
    options = parser.parse_args()
    print(f"{HEAD}\n|---|---|---|---|---|")
    for row in rows(options.cases, options.draws):
        print(f"| {' | '.join(row)} |", flush=True)


def rows(cases: int, draws: int) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each kind: worst hours, dollars and chance, and the coverage."""
    for seed, (kind, make) in enumerate(KINDS.items(), 100):
        yield (kind, *_of_hourly(make, cases, draws, np.random.default_rng(seed)))
    for as_launched in (False, True):
        kind = "mix, as launched" if as_launched else "mix, by the steps alone"
        rng = np.random.default_rng(200 + as_launched)
        yield (kind, *_of_mix(cases, draws, rng, as_launched=as_launched))
    for words, increment_s in (("by the hour", 3600.0), ("by ten minutes", 600.0)):
        rng = np.random.default_rng(round(increment_s))
        yield (f"on demand, billed {words}", *_of_increments(increment_s, cases, draws, rng))
    block = PaidWhole(
        lengths_s=tuple(float(day * HOURS_PER_DAY * SECONDS_PER_HOUR) for day in block_days("aws")),
        lost_s=block_lost_s("aws"),
    )
    yield ("block", *_of_paid_whole(block, cases, draws, np.random.default_rng(300)))
    for years, share in ON_DEMAND_OVER_TERM.items():
        term_s = float(years * HOURS_PER_YEAR * SECONDS_PER_HOUR)
        term = PaidWhole(lengths_s=(term_s,), hourly_share=share)
        found = _of_paid_whole(term, cases, draws, np.random.default_rng(300 + years), filled=True)
        yield (f"committed for {years} y, for one job", *found)


def _of_hourly(make: Callable[[Rng], Case], cases: int, draws: int, rng: Rng) -> tuple[str, ...]:
    these = [make(rng) for _ in range(cases)]
    found = []
    for zones in sorted({one.zones for one in these}):
        for batch in _batches([one for one in these if one.zones == zones]):
            found += compared(batch, draws, rng)
    return (
        _percent(one.mean for one in found),
        _percent(one.billed for one in found),
        _points(one.chance for one in found),
        _coverages([one.coverage for one in found]),
    )


def _of_mix(cases: int, draws: int, rng: Rng, *, as_launched: bool) -> tuple[str, ...]:
    these = [a_case(1 if place % 2 else int(rng.integers(2, 6)), rng) for place in range(cases)]
    found = []
    for batch in _batches(these):
        found += compared_mixes(batch, draws, rng, as_launched=as_launched)
    return (
        _percent(one.elapsed for one in found),
        _percent(one.usd for one in found),
        _points(one.chance for one in found),
        f"{_coverages([one.hours_within for one in found])}; dollars"
        f" {_coverages([one.usd_within for one in found])}",
    )


def _of_increments(increment_s: float, cases: int, draws: int, rng: Rng) -> tuple[str, ...]:
    """Return the cells of runs whose every bill is rounded up; of each other one the run is short.

    A stop ends a bill: new machines begin another.
    """
    these = [a_case(0, rng) if place % 2 else _short(rng) for place in range(cases)]
    billing = next(
        one for one in load_catalogue().providers.values() if one.billing_increment_s == increment_s
    )
    off, covered = [], []
    for batch in _batches(these):
        found = simulated(batch, draws, rng, begun_s=start_up_s(), increment_s=increment_s)
        billed_s = found.rounded_s.reshape(len(batch), draws)
        for case, seconds in zip(batch, billed_s, strict=True):
            cost = launch_cost(
                case.training_s,
                nodes=1,
                usd_per_hour=Decimal(100),
                dearest_usd_per_hour=Decimal(100),
                billing=billing,
                stops=case.stops,
            )
            bills_usd = 100 * seconds / SECONDS_PER_HOUR
            off.append(float(cost.usd_expected or 0) / float(bills_usd.mean()) - 1)
            covered.append(_covered(cost, bills_usd))
    return ("as on demand", _percent(off), "as on demand", _dollars_covered(covered))


def _short(rng: Rng) -> Case:
    """Return a run of a quarter of an hour to ten hours."""
    case = a_case(0, rng)
    seconds = np.exp(rng.uniform(np.log(0.25), np.log(10))) * SECONDS_PER_HOUR
    return _lasting(case, float(seconds))


def _of_paid_whole(
    whole: PaidWhole, cases: int, draws: int, rng: Rng, *, filled: bool = False
) -> tuple[str, ...]:
    """Return the cells of what is paid before a run begins; its hours are those on demand."""
    these = [_filling(whole, rng) if filled else a_case(0, rng) for _ in range(cases)]
    off = []
    for batch in _batches(these):
        elapsed_s = simulated(batch, draws, rng).elapsed_s.reshape(len(batch), draws)
        for case, took_s in zip(batch, elapsed_s, strict=True):
            off.append(_off(whole, case, took_s + start_up_s()))
    return (
        "as on demand",
        _percent(one.usd for one in off),
        _points(one.chance for one in off),
        _dollars_covered([one.covered for one in off]),
    )


def _filling(whole: PaidWhole, rng: Rng) -> Case:
    """Return a run that takes about as long as a term."""
    case = a_case(0, rng)
    low, high = (np.log(share) for share in FILLED)
    wanted_s = whole.lengths_s[0] * np.exp(rng.uniform(low, high))
    return _lasting(case, min(wanted_s, MOST_STOPS / case.stops.per_hour * SECONDS_PER_HOUR))


def _lasting(case: Case, seconds: float) -> Case:
    """Return a case with steps that take so long in all."""
    old = case.training_s
    times = seconds / old.value
    scaled = {"value": old.value * times, "low": old.low * times, "high": old.high * times}
    return replace(case, training_s=old.model_copy(update=scaled))


class _Off(NamedTuple):
    """What is paid before a run begins, against the simulation."""

    usd: float
    """Closed form over simulation, less 1."""
    chance: float
    """Difference of the chance to end within what is paid first."""
    covered: _Covered


class _Covered(NamedTuple):
    """The interval of dollars against the simulation."""

    share: float
    """Of the simulated bills, in it."""
    ends_at_mean: bool
    """Whether the mean is an end: an interval holds it, though nine of ten bills be below."""


def _off(whole: PaidWhole, case: Case, took_s: np.ndarray) -> _Off:
    """Return how far the bill and its chances are from those of the simulated runs.

    Their bills are counted here with arrays, run by run.
    """
    cost = launch_cost(
        case.training_s,
        nodes=1,
        usd_per_hour=Decimal(1),
        dearest_usd_per_hour=Decimal(1),
        billing=None,
        stops=case.stops,
        paid_whole=whole,
    )
    if cost.run is None or cost.usd_expected is None:
        raise SystemExit("A run without an expected time cannot be compared.")
    expected_s = np.array([cost.run.elapsed_s + start_up_s()])
    (paid_s,), (usable_s,) = _whole_lengths(whole, expected_s)
    share = whole.hourly_share
    if share is not None:
        paid_s = usable_s = _cheapest_terms_s(whole.lengths_s[0], float(share), expected_s[0])
    over_s = np.maximum(0.0, took_s - usable_s)
    more_s = _whole_lengths(whole, over_s)[0] if share is None else float(share) * over_s
    bills_usd = (paid_s + more_s) / SECONDS_PER_HOUR
    said = cost.run.chance_within(float(usable_s - start_up_s()))
    return _Off(
        usd=float(cost.usd_expected) / float(bills_usd.mean()) - 1,
        chance=said - float((took_s <= usable_s).mean()),
        covered=_covered(cost, bills_usd),
    )


def _covered(cost: LaunchCost, bills_usd: np.ndarray) -> _Covered:
    """Return the share of bills between the ends of 80 %, where many may be just as much as an end.

    Runs that end within what is paid first all pay the same. Of bills that are equal to an end,
    as many count as beyond it as make a tenth of all, but no more than there are: then 80 % is what
    an interval has whose ends are the 10th and 90th percentile.
    """
    if cost.usd_low is None or cost.usd_high is None:
        raise SystemExit("A run without an expected time cannot be compared.")
    low_usd, high_usd = float(cost.usd_low), float(cost.usd_high)
    close_usd = max(CENT_USD, CLOSE * high_usd)
    below = (bills_usd < low_usd - close_usd).mean(), (bills_usd <= low_usd + close_usd).mean()
    above = (bills_usd > high_usd + close_usd).mean(), (bills_usd >= high_usd - close_usd).mean()
    outside = (float(np.clip(TAIL, least, most)) for least, most in (below, above))
    mean_usd = float(cost.usd_expected or 0)
    ends_at_mean = min(abs(mean_usd - low_usd), abs(mean_usd - high_usd)) <= 2 * close_usd
    return _Covered(share=1 - sum(outside), ends_at_mean=ends_at_mean)


def _cheapest_terms_s(term_s: float, share: float, expected_s: float) -> float:
    """Return the terms, one at least, with which what is expected costs least, seconds."""
    counts = np.arange(1, int(expected_s // term_s) + 2)
    costs_s = counts * term_s + share * np.maximum(0.0, expected_s - counts * term_s)
    return float(counts[np.argmin(costs_s)] * term_s)


def _whole_lengths(whole: PaidWhole, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what is paid of the lengths that can be had, and for how long machines then run."""
    lengths_s = np.array(whole.lengths_s)
    usable_s = lengths_s - whole.lost_s
    longest = np.floor(seconds / usable_s[-1])
    rest_s = seconds - longest * usable_s[-1]
    place = np.minimum(np.searchsorted(usable_s, rest_s - 1e-6), len(lengths_s) - 1)
    takes_more = rest_s > 1e-6
    return (
        longest * lengths_s[-1] + np.where(takes_more, lengths_s[place], 0.0),
        longest * usable_s[-1] + np.where(takes_more, usable_s[place], 0.0),
    )


def _batches(cases: Sequence[Case]) -> Iterator[Sequence[Case]]:
    for begin in range(0, len(cases), BATCH):
        yield cases[begin : begin + BATCH]


def _percent(offs: Iterator[float] | Sequence[float]) -> str:
    return f"{100 * max(map(abs, offs)):.2g} %"


def _coverages(shares: Sequence[float]) -> str:
    return f"{100 * min(shares):.1f}–{100 * max(shares):.1f} %"


def _dollars_covered(found: Sequence[_Covered]) -> str:
    shares = [one.share for one in found if not one.ends_at_mean or one.share <= 1 - 2 * TAIL]
    wide = [one.share for one in found if one.ends_at_mean and one.share > 1 - 2 * TAIL]
    more = f"; up to {100 * max(wide):.1f} % where an end is the mean ({len(wide)})" if wide else ""
    return f"dollars {_coverages(shares)}{more}"


def _points(offs: Iterator[float] | Sequence[float]) -> str:
    return f"{100 * max(map(abs, offs)):.1f}"


if __name__ == "__main__":
    main()
