"""From a step to the bill: exact small sums, and what stays unknown where no price is known."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.errors import UsageError
from gpuplan.planner.cost.run_cost import run_cost, samples_of, steps_of
from gpuplan.planner.plan.plan import Estimated, RunCost
from gpuplan.planner.plan.question import Work

STEP = Estimated(value=0.5, low=0.25, high=1.0, basis="analytic")


def cost(**changes: object) -> RunCost:
    given = {
        "samples": 7200 * 64,
        "global_batch": 64,
        "nodes": 2,
        "usd_per_hour": Decimal("3.50"),
        "spot_usd_per_hour": Decimal("1.25"),
        "tokens_per_sample": 1000.0,
    }
    return run_cost(STEP, **{**given, **changes})  # pyright: ignore[reportArgumentType]


def test_an_hour_of_two_nodes() -> None:
    run = cost()
    assert (run.steps, run.hours, run.hours_low, run.hours_high) == (7200, 1.0, 0.5, 2.0)
    assert (run.usd, run.usd_low, run.usd_high, run.spot_usd) == (7.0, 3.5, 14.0, 2.5)
    assert run.usd_per_million_samples == pytest.approx(7e6 / (7200 * 64))
    assert run.usd_per_million_tokens == pytest.approx(7e3 / (7200 * 64))
    (line,) = run.cost_lines
    assert (line.quantity, line.unit, line.unit_usd, line.usd) == (
        2.0,
        "instance-hour",
        Decimal("3.50"),
        Decimal("7.00"),
    )


def test_without_a_price_there_are_hours_but_no_dollars() -> None:
    run = cost(usd_per_hour=None, spot_usd_per_hour=None)
    assert run.hours == 1.0
    dollars = (run.usd, run.usd_low, run.usd_high, run.spot_usd)
    assert dollars == (None,) * 4
    assert run.usd_per_million_samples is None and run.usd_per_million_tokens is None
    assert run.cost_lines == ()


def test_a_machine_that_costs_nothing_has_a_bill_of_nothing() -> None:
    run = cost(usd_per_hour=Decimal(0))
    assert (run.usd, run.usd_per_million_samples) == (0.0, 0.0)
    assert [line.usd for line in run.cost_lines] == [Decimal("0.00")]


@pytest.mark.parametrize(("tokens", "known"), [(None, False), (0.0, False), (10.0, True)])
def test_tokens_have_a_price_where_a_sample_has_tokens(tokens: float | None, known: bool) -> None:
    assert (cost(tokens_per_sample=tokens).usd_per_million_tokens is not None) == known


@given(samples=st.floats(1, 1e9), batch=st.integers(1, 10**6))
def test_a_step_that_is_begun_is_paid_for_whole(samples: float, batch: int) -> None:
    run = cost(samples=samples, global_batch=batch)
    assert run.steps >= 1
    assert (run.steps - 1) * batch < samples <= run.steps * batch
    assert run.hours_low <= run.hours <= run.hours_high


@given(nodes=st.integers(1, 512), usd=st.decimals("0.01", "400", places=2))
def test_the_lines_add_up_to_the_bill(nodes: int, usd: Decimal) -> None:
    run = cost(nodes=nodes, usd_per_hour=usd)
    assert float(sum(line.usd for line in run.cost_lines)) == pytest.approx(run.usd, abs=0.0051)


@pytest.mark.parametrize(
    ("work", "samples"),
    [
        (Work(), None),
        (Work(steps=10), 640.0),
        (Work(samples=1e6), 1e6),
        (Work(epochs=1.5, dataset_size=1000), 1500.0),
        (Work(tokens=4096), 2.0),
    ],
)
def test_an_amount_of_work_in_samples(work: Work, samples: float | None) -> None:
    assert samples_of(work, 2048.0, 64) == samples


@pytest.mark.parametrize(
    ("work", "missing"), [(Work(epochs=2), "data set"), (Work(tokens=1e9), "tokens a sample")]
)
def test_an_amount_that_cannot_be_counted_is_refused(work: Work, missing: str) -> None:
    with pytest.raises(UsageError, match=missing):
        samples_of(work, None, 64)


@given(
    steps=st.integers(min_value=1, max_value=10**17),
    global_batch=st.integers(min_value=1, max_value=10**7),
    data=st.data(),
)
def test_whole_samples_are_divided_exactly(steps: int, global_batch: int, data) -> None:
    assert samples_of(Work(steps=steps), None, global_batch) == steps * global_batch
    assert steps_of(steps * global_batch, global_batch) == steps
    less = data.draw(st.integers(min_value=0, max_value=global_batch - 1))
    assert steps_of(steps * global_batch - less, global_batch) == steps
    assert steps_of(steps * global_batch + 1, global_batch) == steps + 1


def test_a_part_of_a_batch_is_a_step() -> None:
    assert [steps_of(one, 64) for one in (0.5, 64.0, 64.5, 128)] == [1, 1, 2, 2]
