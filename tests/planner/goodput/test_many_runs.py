"""Many plans priced at once: each as if it were alone, and quickly."""

import time

import numpy as np
import pytest

from gpuplan.planner.goodput.expected_run import expected_run
from gpuplan.planner.goodput.many_runs import ManyRuns, expected_runs
from gpuplan.planner.plan.parts import Estimated, Stops

PLANS = 60_000
HOUR = 3600.0


def some_plans(count: int) -> ManyRuns:
    """Return plans of an hour to half a year, stopped once in 2 hours to once in a century."""
    rng = np.random.default_rng(1)
    per_hour = np.exp(rng.uniform(np.log(1e-6), np.log(0.5), count))
    training_s = HOUR * np.exp(rng.uniform(0, np.log(4000), count))
    return ManyRuns(
        training_s=training_s,
        training_s_low=training_s / rng.uniform(1, 1.5, count),
        training_s_high=training_s * rng.uniform(1, 1.5, count),
        per_hour=per_hour,
        per_hour_low=per_hour / rng.uniform(1, 20, count),
        per_hour_high=np.minimum(0.5, per_hour * rng.uniform(1, 10, count)),
        stall_s=rng.uniform(1, 60, count),
        restart_s=rng.uniform(300, 2000, count),
        wait_s=rng.uniform(0, 3600, count),
        usd_per_hour=np.exp(rng.uniform(0, np.log(5000), count)),
        saved_share=rng.uniform(0, 0.9, count),
    )


def test_each_is_priced_as_if_it_were_alone() -> None:
    many = some_plans(200)
    found = expected_runs(many)
    for place in range(200):
        training_s = float(many.training_s[place])
        run = expected_run(
            Estimated(
                value=training_s,
                low=float(many.training_s_low[place]),
                high=float(many.training_s_high[place]),
                basis="analytic",
            ),
            Stops(
                per_hour=many.per_hour[place],
                per_hour_low=many.per_hour_low[place],
                per_hour_high=many.per_hour_high[place],
                checkpoint_bytes=1e9,
                stall_s=many.stall_s[place],
                restart_s=many.restart_s[place],
                wait_s=many.wait_s[place],
                saved_share=many.saved_share[place],
            ),
        )
        assert found.elapsed_s[place] == pytest.approx(run.elapsed_s, rel=1e-4)
        assert found.billed_s[place] == pytest.approx(run.billed_s, rel=1e-4)
        assert found.interval_s[place] == pytest.approx(run.interval_s, rel=1e-4)
        assert found.stops[place] == pytest.approx(run.stops, rel=1e-3)
        usd = run.billed_s / HOUR * float(many.usd_per_hour[place])
        assert found.usd[place] == pytest.approx(usd, rel=1e-4)


def test_sixty_thousand_take_half_a_second() -> None:
    many = some_plans(PLANS)
    expected_runs(many)
    began_s = time.process_time()
    found = expected_runs(many)
    assert time.process_time() - began_s <= 0.5
    assert np.isfinite(found.usd).all()


def test_an_unknown_price_stays_unknown() -> None:
    many = some_plans(2)
    many.usd_per_hour[0] = np.nan
    usd = expected_runs(many).usd
    assert np.isnan(usd[0])
    assert usd[1] > 0
