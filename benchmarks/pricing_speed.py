"""How long the expected time and cost of many plans take, as arrays and one after the other.

python benchmarks/pricing_speed.py [--plans 60000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Provider
from gpuplan.catalog.units import SECONDS_PER_HOUR
from gpuplan.planner.cost.billing import Lengths, mean_billed_us
from gpuplan.planner.cost.paid_whole import MICROSECONDS_PER_SECOND
from gpuplan.planner.goodput.expected_run import ExpectedRun, expected_run
from gpuplan.planner.goodput.many_runs import ManyRuns, expected_runs
from gpuplan.planner.plan.parts import Estimated, Stops

REPEATS = 5
SINGLE = 500
"""Plans that are priced one after the other, with their distributions."""
BUDGET_S = 0.5
_SELLERS = load_catalogue().providers
BILLED = {"second": _SELLERS["aws"], "ten minutes": _SELLERS["verda"], "hour": _SELLERS["vultr"]}
"""Sellers by what they round up to."""


def main() -> None:
    """Print both times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plans", type=int, default=60_000)
    count = parser.parse_args().plans
    many = _plans(count)
    times_s = [_seconds(lambda: expected_runs(many)) for _ in range(REPEATS)]
    print(f"{count} plans at once: {min(times_s):.3f} s (budget {BUDGET_S:g} s)")
    single_s = _seconds(lambda: [_one(many, place) for place in range(min(SINGLE, count))])
    print(f"one plan with its distribution: {1e3 * single_s / min(SINGLE, count):.2f} ms")
    bills = _bills(many, min(SINGLE, count))
    for name, billing in BILLED.items():
        bills_s = _seconds(lambda billing=billing: [_billed(one, billing) for one in bills])
        print(f"its bill by the {name}: {1e6 * bills_s / len(bills):.1f} µs")


def _bills(many: ManyRuns, count: int) -> list[tuple[int, Lengths]]:
    """Return how long machines run and how that is spread, as a search knows it of candidates."""
    found = expected_runs(many)
    bills = []
    for place in range(count):
        run = _one(many, place)
        mean_s = float(found.billed_s[place])
        lengths = Lengths(
            spread_s=run.high_s - run.low_s, stops=run.stops, chance_within=run.chance_within
        )
        bills.append((round(mean_s * MICROSECONDS_PER_SECOND), lengths))
    return bills


def _billed(bill: tuple[int, Lengths], billing: Provider) -> int:
    mean_us, lengths = bill
    return mean_billed_us(mean_us, billing, lengths)


def _seconds(what: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    what()
    return time.perf_counter() - began_s


def _plans(count: int) -> ManyRuns:
    rng = np.random.default_rng(1)
    per_hour = np.exp(rng.uniform(np.log(1e-5), np.log(0.1), count))
    training_s = SECONDS_PER_HOUR * np.exp(rng.uniform(0, np.log(2000), count))
    return ManyRuns(
        training_s=training_s,
        training_s_low=training_s / 1.2,
        training_s_high=training_s * 1.2,
        per_hour=per_hour,
        per_hour_low=per_hour / 4,
        per_hour_high=per_hour * 3,
        stall_s=rng.uniform(5, 30, count),
        restart_s=rng.uniform(600, 1500, count),
        wait_s=rng.uniform(0, 1800, count),
        usd_per_hour=np.exp(rng.uniform(0, np.log(5000), count)),
    )


def _one(many: ManyRuns, place: int) -> ExpectedRun:
    seconds = float(many.training_s[place])
    stops = Stops(
        per_hour=many.per_hour[place],
        per_hour_low=many.per_hour_low[place],
        per_hour_high=many.per_hour_high[place],
        checkpoint_bytes=1e10,
        stall_s=many.stall_s[place],
        restart_s=many.restart_s[place],
        wait_s=many.wait_s[place],
    )
    steps = Estimated(
        value=seconds,
        low=float(many.training_s_low[place]),
        high=float(many.training_s_high[place]),
        basis="analytic",
    )
    return expected_run(steps, stops)


if __name__ == "__main__":
    main()
