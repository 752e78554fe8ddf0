"""A run with its start and its bill: one sum for the ranking, the plan and the launch."""

from decimal import Decimal

import pytest
from answers import make_stops
from hypothesis import example, given
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.cost.launch_cost import launch_cost
from gpuplan.planner.cost.start_up import start_up_s
from gpuplan.planner.cost.whole_job import expected_usd, training_s_within, whole_job
from gpuplan.planner.goodput.expected_run import mean_training_s
from gpuplan.planner.plan.plan import Estimated

PROVIDERS = load_catalogue().providers


@given(
    training_s=st.floats(1, 1e8),
    nodes=st.integers(1, 64),
    cents=st.integers(1, 20_000),
    provider=st.sampled_from(sorted(PROVIDERS)),
)
def test_the_ranking_the_plan_and_the_launch_count_the_same(
    training_s: float, nodes: int, cents: int, provider: str
) -> None:
    price, billing = Decimal(cents) / 100, PROVIDERS[provider]
    low_s, high_s = 0.9 * training_s, 1.2 * training_s
    step = Estimated(value=training_s, low=low_s, high=high_s, basis="analytic")
    job = whole_job(
        step, nodes=nodes, usd_per_hour=price, spot_usd_per_hour=price / 2, billing=billing
    ).whole
    launched = launch_cost(
        step, nodes=nodes, usd_per_hour=price, dearest_usd_per_hour=price, billing=billing
    )
    assert job.usd == launched.usd_expected == sum(line.usd for line in job.cost_lines)
    ranked = expected_usd(
        start_up_s() + mean_training_s(step),
        nodes=nodes,
        usd_per_hour=float(price),
        billing=billing,
    )
    assert float(job.usd or 0) == pytest.approx(ranked, rel=1e-6, abs=0.006)
    assert job.usd_low is not None and job.usd is not None and job.usd_high is not None
    assert job.usd_low <= job.usd <= job.usd_high
    assert job.hours * 3600 == pytest.approx(start_up_s() + mean_training_s(step))


@given(seconds=st.floats(1, 1e6), per_hour=st.floats(1e-6, 0.5), wait_s=st.floats(0, 3600))
@example(60.0, 0.2, 1800.0)
def test_the_likely_time_lies_in_its_interval_where_stops_are_rare_and_long(
    seconds: float, per_hour: float, wait_s: float
) -> None:
    """The mean of a short run with a rare long stop is beyond nine in ten of such runs."""
    step = Estimated(value=seconds, low=0.98 * seconds, high=1.02 * seconds, basis="measured")
    rates = {"per_hour_low": per_hour / 3, "per_hour_high": 3 * per_hour}
    stops = make_stops(per_hour=per_hour, **rates, restart_s=4000.0, wait_s=wait_s)
    job = whole_job(
        step,
        nodes=1,
        usd_per_hour=Decimal("0.55"),
        spot_usd_per_hour=None,
        billing=PROVIDERS["aws"],
        stops=stops,
    ).whole
    assert job.hours_low <= job.hours <= job.hours_high
    assert job.usd_low is not None and job.usd is not None and job.usd_high is not None
    assert job.usd_low <= job.usd <= job.usd_high


def test_an_unknown_price_stays_unknown() -> None:
    step = Estimated(value=60.0, low=50.0, high=70.0, basis="analytic")
    job = whole_job(step, nodes=1, usd_per_hour=None, spot_usd_per_hour=None, billing=None).whole
    assert (job.usd, job.usd_low, job.usd_high, job.spot_usd) == (None,) * 4
    assert job.cost_lines == ()
    assert job.hours > 0


@given(
    budget_usd=st.floats(1, 1e6),
    deadline_s=st.none() | st.floats(1, 1e7),
    nodes=st.integers(1, 64),
    cents=st.integers(1, 20_000),
    provider=st.sampled_from(sorted(PROVIDERS)),
)
def test_what_trains_within_limits_costs_no_more_with_its_start(
    budget_usd: float, deadline_s: float | None, nodes: int, cents: int, provider: str
) -> None:
    price, billing = cents / 100, PROVIDERS[provider]
    training_s, limit = training_s_within(
        deadline_s=deadline_s,
        budget_usd=budget_usd,
        nodes=nodes,
        usd_per_hour=price,
        billing=billing,
    )
    if training_s <= 0:
        return
    assert limit == "budget" or deadline_s is not None
    elapsed_s = start_up_s() + training_s
    assert deadline_s is None or elapsed_s <= deadline_s * (1 + 1e-12)
    usd = expected_usd(elapsed_s, nodes=nodes, usd_per_hour=price, billing=billing)
    assert usd <= budget_usd
