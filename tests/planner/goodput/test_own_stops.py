"""What the priors become with the counts of the user's own runs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.goodput.own_stops import NO_OWN_STOPS, CountedStops, OwnStops
from gpuplan.planner.goodput.priors import RatePrior, failure_rate, stated
from gpuplan.planner.goodput.stops import Rented, State, rate_of, stops_of

H100 = load_catalogue().accelerators["H100-80GB-SXM"]
STRENGTH = stated("own", "strength_stops")
MARKET = ("gcp", "us-central1", H100.name)


def rented(own: OwnStops = NO_OWN_STOPS, **changes: object) -> Rented:
    base = Rented(
        accelerator=H100,
        accelerators=8,
        nodes=1,
        purchase="on-demand",
        provider="gcp",
        region="us-central1",
        instance_type="a3-highgpu-8g",
        own=own,
    )
    return replace(base, **changes)


def counted(stops: int, *, runs: int = 10, hours: float, accelerators: int = 8) -> CountedStops:
    return CountedStops(runs=runs, hours=hours, accelerator_hours=hours * accelerators, stops=stops)


def failing(stops: int, *, hours: float, accelerators: int = 8) -> RatePrior:
    seen = counted(stops, hours=hours, accelerators=accelerators)
    return rate_of(rented(OwnStops(failures={H100.name: seen})))


def test_without_own_runs_on_that_accelerator_the_prior_stays_as_it_is() -> None:
    others = OwnStops(failures={"A100-40GB-SXM": counted(50, hours=10.0)})
    assert rate_of(rented(others)) == failure_rate("NVIDIA", 8) == rate_of(rented())


def test_three_lucky_days_change_little_and_many_runs_take_over() -> None:
    prior = failure_rate("NVIDIA", 8).value.per_hour
    assert failing(0, hours=72).value.per_hour == pytest.approx(prior, rel=0.01)
    # Twice as often as the prior says, 400 stops long.
    hours = 400 / (2 * prior)
    assert failing(400, hours=hours).value.per_hour == pytest.approx(2 * prior, rel=0.02)


def test_the_rate_is_the_mean_of_a_gamma_distribution_after_a_poisson_count() -> None:
    """Against the posterior itself, summed over rates on a grid."""
    per_hour = failure_rate("NVIDIA", 8).value.per_hour
    hours, stops = 3 / per_hour, 5
    rates = np.linspace(1e-6, 20, 200_001) * per_hour
    prior = rates ** (STRENGTH - 1) * np.exp(-STRENGTH * rates / per_hour)
    after = prior * rates**stops * np.exp(-rates * hours)
    mean = float((rates * after).sum() / after.sum())
    assert failing(stops, hours=hours).value.per_hour == pytest.approx(mean, rel=1e-4)


def test_the_interval_narrows_by_stops_and_not_by_luck() -> None:
    def width(rate: RatePrior) -> float:
        return math.log(rate.high.per_s / rate.low.per_s)

    prior = failure_rate("NVIDIA", 8)
    assert width(failing(0, hours=1e5)) == pytest.approx(width(prior))
    assert width(failing(1, hours=1e3)) < width(prior)
    # Of 400 counted stops alone the rate is known to 1.28 / sqrt(400), either way.
    assert width(failing(400, hours=1e4)) == pytest.approx(2 * 1.2816 / 20, rel=0.02)


def test_large_own_runs_are_compared_with_the_prior_of_their_size() -> None:
    """As many stops as the prior expects of 16,384 accelerators leave a small job's rate as is."""
    large = failure_rate("NVIDIA", 16_384).value.per_hour
    found = failing(20, hours=20 / large, accelerators=16_384)
    assert found.value.per_hour == pytest.approx(failure_rate("NVIDIA", 8).value.per_hour)


def test_own_interruptions_count_for_spot_machines_of_that_market_alone() -> None:
    seen = counted(30, hours=300.0)
    own = OwnStops(interruptions={MARKET: seen})
    assert rate_of(rented(own)) == rate_of(rented()), "machines on demand"
    elsewhere = rented(own, purchase="spot", region="europe-west4")
    assert rate_of(elsewhere) == rate_of(rented(purchase="spot", region="europe-west4"))
    spot = rate_of(rented(own, purchase="spot"))
    market = spot.value.per_hour - failure_rate("NVIDIA", 8).value.per_hour
    assert market == pytest.approx((STRENGTH + 30) / (STRENGTH / 0.01 + 300))
    assert market > 4 * 0.01


def test_the_source_says_what_was_counted_and_how_it_is_weighed() -> None:
    seen = CountedStops(runs=41, hours=1537.5, accelerator_hours=12_300, stops=2)
    own = OwnStops(
        failures={H100.name: seen},
        interruptions={MARKET: counted(1, runs=1, hours=9.5)},
        launches=44,
        untrained=3,
    )
    state = State(checkpoint_bytes=1e9, parts=8)
    stops = stops_of(rented(own, purchase="spot"), state, start_s=300)
    said = "; ".join(stops.sources)
    assert (
        "your 41 runs on H100-80GB-SXM: 12,300 accelerator-hours, 2 stops, of which the prior"
        " expects 0.54; the prior, which counts as 4 stops: Llama 3"
    ) in said
    assert "your 1 run on spot H100-80GB-SXM of gcp us-central1: 9.5 hours, 1 interruption" in said
    assert "3 of your 44 launches failed before their first step" in said
    unknown = stops_of(rented(purchase="spot"), state, start_s=300)
    assert "your" not in "; ".join(unknown.sources)
    assert stops.per_hour > unknown.per_hour
