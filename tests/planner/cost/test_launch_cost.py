"""What a launch costs: its lines add up, billing rounds up, what is not known stays unknown."""

import math
from decimal import Decimal

import numpy as np
import pytest
from answers import make_stops
from hypothesis import example, given
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Provider
from gpuplan.planner.cost.billing import Lengths, billed_seconds, mean_billed_us
from gpuplan.planner.cost.launch_cost import LaunchCost, launch_cost
from gpuplan.planner.cost.paid_whole import UNUSED_BLOCK, PaidWhole
from gpuplan.planner.cost.start_up import startups
from gpuplan.planner.cost.whole_job import expected_usd
from gpuplan.planner.goodput.priors import beside_steps_spread, prior
from gpuplan.planner.goodput.spread import DECILE, Spread
from gpuplan.planner.plan.plan import Estimated

AWS = load_catalogue().providers["aws"]
VERDA = load_catalogue().providers["verda"]
UNKNOWN = load_catalogue().providers["nebius"]


def cost(hours: float | None, **changes: object) -> LaunchCost:
    training = None
    if hours is not None:
        s = hours * 3600
        training = Estimated(value=s, low=0.9 * s, high=1.2 * s, basis="analytic")
    facts = {
        "nodes": 2,
        "usd_per_hour": Decimal("21.96"),
        "dearest_usd_per_hour": Decimal("21.96"),
        "billing": AWS,
    }
    return launch_cost(training, **{**facts, **changes})  # type: ignore[arg-type]


def test_the_lines_are_the_start_the_training_and_the_increment() -> None:
    names = [line.name for line in cost(2).lines]
    assert names == ["provisioning", "setup", "staging", "training", "billing increment"]


def test_a_controller_is_paid_until_ten_minutes_after_the_job() -> None:
    alone, beside = cost(2), cost(2, controller_usd_per_hour=Decimal("0.60"))
    *lines, line = beside.lines
    assert tuple(lines) == alone.lines and line.name == "SkyPilot's controller"
    assert line.quantity == pytest.approx((alone.hours_expected or 0) + 1 / 6)
    for name, hours in (("usd_expected", line.quantity), ("usd_worst", 1 / 6)):
        more = getattr(beside, name) - getattr(alone, name)
        assert float(more) >= hours * 0.6 - 0.005
    assert beside.usd_low is not None and beside.usd_high is not None
    assert beside.usd_low <= (beside.usd_expected or 0) <= beside.usd_high


@given(st.floats(0.001, 2000), st.sampled_from([AWS, VERDA, UNKNOWN]))
@example(1.1, AWS)
def test_lines_add_up_and_the_worst_is_no_less(hours: float, billing: object) -> None:
    answer = cost(hours, billing=billing)
    assert answer.usd_expected == sum(line.usd for line in answer.lines)
    for line in answer.lines:
        assert abs(float(line.usd) - line.quantity * float(line.unit_usd)) < 0.01 + 1e-9
        assert line.usd >= 0 and line.usd.as_tuple().exponent == -2
        assert line.quantity >= 0
    # The sum itself is rounded once, whatever the number of lines.
    exact = sum(line.quantity * float(line.unit_usd) for line in answer.lines)
    assert float(answer.usd_expected or 0) == pytest.approx(exact, abs=0.005 + 1e-9, rel=1e-12)
    assert answer.usd_worst is not None and answer.usd_expected is not None
    assert answer.usd_worst >= answer.usd_expected


RATES = st.none() | st.floats(1e-6, 0.5)


@given(
    training_s=st.floats(0.01, 1e6),
    narrow=st.floats(0.3, 1),
    wide=st.floats(1, 3),
    nodes=st.integers(1, 64),
    price=st.decimals("0.01", "200", places=4),
    billing=st.sampled_from([AWS, VERDA, UNKNOWN]),
    per_hour=RATES,
    wait_s=st.sampled_from([0.0, 1800.0]),
    tax_percent=st.none() | st.decimals("0.1", "27", places=1),
)
@example(60.0, 0.9, 1.2, 1, Decimal("0.5500"), AWS, None, 0.0, None)
@example(60.0, 1.0, 1.0, 1, Decimal("30.0000"), AWS, 0.2, 1800.0, None)
def test_the_likely_cost_lies_in_its_interval_and_is_the_sum_of_its_lines(
    training_s: float,
    narrow: float,
    wide: float,
    nodes: int,
    price: Decimal,
    billing: Provider,
    per_hour: float | None,
    wait_s: float,
    tax_percent: Decimal | None,
) -> None:
    step = Estimated(
        value=training_s, low=narrow * training_s, high=wide * training_s, basis="analytic"
    )
    stops = None
    if per_hour is not None:
        rates = {"per_hour_low": per_hour / 3, "per_hour_high": 3 * per_hour}
        stops = make_stops(per_hour=per_hour, **rates, restart_s=4000.0, wait_s=wait_s)
    answer = launch_cost(
        step,
        nodes=nodes,
        usd_per_hour=price,
        dearest_usd_per_hour=price,
        billing=billing,
        stops=stops,
        tax_percent=tax_percent,
    )
    assert answer.usd_low is not None and answer.usd_expected is not None
    assert answer.usd_high is not None and answer.usd_worst is not None
    assert answer.usd_low <= answer.usd_expected <= answer.usd_high <= answer.usd_worst
    assert answer.usd_expected == sum((line.usd for line in answer.lines), Decimal(0))


def test_a_sum_of_small_lines_is_that_of_the_job_and_not_of_its_rounding() -> None:
    """Four lines of 2.4 cents are 10 cents, where each alone is 2."""
    start_s = sum(one.value_s for one in startups())
    price = Decimal("0.024") / Decimal(str(start_s / 3)) * 3600
    answer = cost(start_s / 3 / 3600, nodes=1, usd_per_hour=price, billing=None)
    assert answer.usd_expected == Decimal("0.10")


def test_the_sum_by_hand() -> None:
    start_s = sum(one.value_s for one in startups())
    answer = cost(2)
    assert answer.usd_expected is not None
    # Of ×1.2 above and ×0.9 below the mean is 3.105 % above the middle: by a table of the normal
    # distribution, e^(0.1423² / 2) × 0.5566 + e^(0.0822² / 2) × 0.4672.
    by_hand = 2 * 21.96 * (start_s + 7200 * 1.031046) / 3600
    assert float(answer.usd_expected) == pytest.approx(by_hand, abs=0.01)
    assert float(answer.usd_per_hour) == 43.92


def test_the_worst_case_is_the_dearest_place() -> None:
    near, far = cost(2), cost(2, dearest_usd_per_hour=Decimal("43.92"))
    assert near.usd_worst is not None and far.usd_worst is not None
    assert float(far.usd_worst) == pytest.approx(2 * float(near.usd_worst), abs=0.02)
    assert far.usd_expected == near.usd_expected


def test_how_long_is_not_known() -> None:
    answer = cost(None)
    assert (answer.usd_expected, answer.usd_worst, answer.hours_worst) == (None, None, None)
    assert [line.name for line in answer.lines] == ["provisioning", "setup", "staging"]


@pytest.mark.parametrize(
    ("seconds", "billing", "billed"),
    [
        (30.0, AWS, 60.0),
        (61.4, AWS, 62.0),
        (601.0, VERDA, 1200.0),
        (600.0, VERDA, 600.0),
        (30.5, UNKNOWN, 30.5),
        (30.5, None, 30.5),
    ],
)
def test_providers_round_up(seconds: float, billing: object, billed: float) -> None:
    us = mean_billed_us(round(seconds * 1e6), billing, None)  # type: ignore[arg-type]
    assert us == billed * 10**6


def test_the_last_digit_of_a_float_bills_no_second_more() -> None:
    assert 1.1 * 3600 > 3960
    assert billed_seconds(1.1 * 3600, increment_s=1.0, minimum_s=None) == 3960


@given(st.integers(1, 10**4), st.sampled_from([1, 60, 600, 3600]))
def test_whole_increments_are_billed_as_they_are(count: int, increment_s: int) -> None:
    tenths = sum([count * increment_s / 10] * 10)
    assert billed_seconds(tenths, increment_s=increment_s, minimum_s=None) == count * increment_s


def test_every_assumed_number_has_its_source() -> None:
    for one in startups():
        assert one.high_s >= one.value_s >= 0
        assert len(one.source) > 20


def test_the_worst_case_of_a_block_is_all_the_days_that_its_slowest_run_needs() -> None:
    """By hand: 23.06 h and a slow start are beyond the 23.5 h of a day; another is paid whole."""
    day_s = 86400.0
    block = PaidWhole(lengths_s=(day_s, 2 * day_s), lost_s=1800.0, rest=UNUSED_BLOCK)
    exactly = Estimated(value=83_000.0, low=83_000.0, high=83_000.0, basis="measured")
    facts = {"nodes": 2, "usd_per_hour": Decimal(10), "billing": None, "paid_whole": block}
    near = launch_cost(exactly, dearest_usd_per_hour=Decimal(10), **facts)  # type: ignore[arg-type]
    start_s = sum(one.value_s for one in startups())
    slowest_s = sum(one.high_s for one in startups())
    assert 83_000 + start_s <= day_s - 1800 < 83_000 + slowest_s
    assert (near.usd_expected, near.usd_of_terms, near.usd_worst) == (480, 480, 960)
    assert near.hours_worst == pytest.approx((83_000 + slowest_s) / 3600)
    # In another place that is tried it takes no block, and the one that is bought is paid.
    far = launch_cost(exactly, dearest_usd_per_hour=Decimal(30), **facts)  # type: ignore[arg-type]
    hours = Decimal(83_000 + slowest_s) / 3600
    assert float(far.usd_worst or 0) == pytest.approx(float(480 + 2 * 30 * hours), abs=0.01)


@pytest.mark.parametrize("share", ["0.5", "0.98", "1", "1.6"])
@pytest.mark.parametrize("hours", [90, 115, 170])
def test_no_line_of_a_term_is_negative_whatever_an_hour_after_it_costs(
    share: str, hours: int
) -> None:
    """A term of 100 hours at $10: by hand, $1,000 and the hours after it at their own price."""
    term = PaidWhole(lengths_s=(360_000.0,), hourly_share=Decimal(share))
    s = hours * 3600.0 - sum(one.value_s for one in startups())
    exactly = Estimated(value=s, low=s, high=s, basis="measured")
    found = launch_cost(
        exactly,
        nodes=1,
        usd_per_hour=Decimal(10),
        dearest_usd_per_hour=Decimal(10),
        billing=None,
        paid_whole=term,
    )
    terms = 2 if hours == 170 and Decimal(share) * 70 >= 100 else 1
    after = max(0, hours - 100 * terms)
    assert found.usd_expected == 1000 * terms + 10 * Decimal(share) * after
    assert sum(line.usd for line in found.lines) == found.usd_expected
    assert found.usd_of_terms == 1000 * terms
    for line in found.lines:
        assert line.usd >= 0 and line.quantity >= 0 and line.unit_usd >= 0, line
        assert line.usd == pytest.approx(
            Decimal(line.quantity) * line.unit_usd, abs=Decimal("0.01")
        )


VULTR = load_catalogue().providers["vultr"]
BARE_METAL = load_catalogue().billing_of("oci", "BM.GPU4.8")
RARE = {"per_hour": 1e-9, "per_hour_low": 1e-9, "per_hour_high": 1e-9}


@pytest.mark.parametrize("hours", [0.5, 0.8, 2.3, 10.4, 60.0])
@pytest.mark.parametrize(
    "billing",
    [VULTR, VERDA, AWS, BARE_METAL],
    ids=["an hour", "ten minutes", "a second", "an hour at least"],
)
@pytest.mark.parametrize("known_to", [1.001, 1.05, 1.3])
def test_what_is_expected_is_the_mean_of_the_bills_of_runs(
    hours: float, billing: Provider, known_to: float
) -> None:
    """Runs are drawn without stops, and the bill of each rounded up by hand."""
    s = hours * 3600
    step = Estimated(value=s, low=s / known_to, high=s * known_to, basis="analytic")
    said = launch_cost(
        step,
        nodes=1,
        usd_per_hour=Decimal(100),
        dearest_usd_per_hour=Decimal(100),
        billing=billing,
        stops=make_stops(**RARE, stall_s=0.0),
    )
    rng = np.random.default_rng(1)
    z, slow = rng.standard_normal((2, 100_000))
    beside = prior("beside_steps")
    spread = Spread.of(1 + beside.value, 1 + beside.low, 1 + beside.high)
    factors = np.exp(slow * np.where(slow > 0, spread.up, spread.down)) * (1 + beside.value)
    start_s = sum(one.value_s for one in startups())
    ran_s = start_s + s * np.exp(z * np.log(known_to) / DECILE) * factors
    every_s = billing.billing_increment_s or 0
    billed_s = np.maximum(np.ceil(ran_s / every_s) * every_s, billing.minimum_s or 0)
    by_hand_usd = 100 * float(billed_s.mean()) / 3600
    assert float(said.usd_expected or 0) == pytest.approx(by_hand_usd, rel=0.005)


@pytest.mark.parametrize("per_hour", [1e-4, 0.03, 0.5])
@pytest.mark.parametrize("hours", [0.6, 2.3, 9.4])
def test_the_ends_of_a_bill_are_bills_that_runs_have(hours: float, per_hour: float) -> None:
    """Of a seller by the hour all bills are whole hours: part of one would be below nearly all."""
    rates = {"per_hour": per_hour, "per_hour_low": per_hour, "per_hour_high": per_hour}
    s = hours * 3600
    found = launch_cost(
        Estimated(value=s, low=s / 1.02, high=s * 1.02, basis="measured"),
        nodes=1,
        usd_per_hour=Decimal(100),
        dearest_usd_per_hour=Decimal(100),
        billing=VULTR,
        stops=make_stops(**rates),
    )
    for end in (found.usd_low, found.usd_high, found.usd_worst):
        assert end is not None and (end % 100 == 0 or end == found.usd_expected)


def test_new_machines_after_a_stop_begin_a_bill_of_their_own() -> None:
    """Each is rounded up by half an hour on average: 40 h with some 4 stops are 2 h more."""
    often = make_stops(per_hour=0.1, per_hour_low=0.1, per_hour_high=0.1)
    exact, hourly = cost(40, billing=None, stops=often), cost(40, billing=VULTR, stops=often)
    assert exact.run is not None and exact.run.stops > 3
    more_h = (hourly.hours_expected or 0) - (exact.hours_expected or 0)
    assert more_h == pytest.approx(0.5 + exact.run.stops / 2, abs=0.01)
    line = hourly.lines[-1]
    assert line.name == "billing increment" and line.quantity == pytest.approx(2 * more_h)


@given(
    training_s=st.floats(600, 1e7),
    per_hour=st.floats(1e-6, 0.05),
    provider=st.sampled_from([VULTR, VERDA, AWS]),
    known_to=st.floats(1.0, 1.4),
)
def test_the_search_expects_what_the_launch_does_whatever_bills_are_rounded_to(
    training_s: float, per_hour: float, provider: Provider, known_to: float
) -> None:
    ends = {"low": training_s / known_to, "high": training_s * known_to}
    step = Estimated(value=training_s, **ends, basis="analytic")
    rates = {"per_hour_low": per_hour / 3, "per_hour_high": 3 * per_hour}
    found = launch_cost(
        step,
        nodes=1,
        usd_per_hour=Decimal(10),
        dearest_usd_per_hour=Decimal(10),
        billing=provider,
        stops=make_stops(per_hour=per_hour, **rates),
    )
    run = found.run
    assert run is not None
    start_s = sum(one.value_s for one in startups())
    ranked = expected_usd(
        start_s + run.billed_s,
        nodes=1,
        usd_per_hour=10.0,
        billing=provider,
        lengths=Lengths(
            spread_s=training_s * math.hypot(known_to - 1 / known_to, beside_steps_spread()),
            stops=run.stops,
            chance_within=lambda seconds: run.chance_within(
                (seconds - start_s) * run.elapsed_s / run.billed_s
            ),
        ),
    )
    assert ranked == pytest.approx(float(found.usd_expected or 0), rel=0.005, abs=0.02)
    assert found.usd_low is not None and found.usd_expected is not None
    assert found.usd_low <= found.usd_expected <= (found.usd_high or 0)
