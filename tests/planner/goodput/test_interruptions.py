"""Which rate of interruptions a spot plan counts with."""

from dataclasses import replace

import pytest
from fake_cloud import eviction

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.interruptions import InterruptionRow, read_interruptions
from gpuplan.planner.goodput.expected_run import expected_run
from gpuplan.planner.goodput.interruptions import interruption_rate, notice_s, saved_chance
from gpuplan.planner.goodput.rates import HourlyChance
from gpuplan.planner.goodput.stops import Rented, State, rate_of, stops_of
from gpuplan.planner.plan.parts import Estimated

H100 = load_catalogue().accelerators["H100-80GB-SXM"]


def spot(nodes: int, provider: str = "aws") -> Rented:
    return Rented(
        accelerator=H100,
        accelerators=8 * nodes,
        nodes=nodes,
        purchase="spot",
        provider=provider,
        region="us-east-1",
        instance_type="p5.48xlarge",
    )


@pytest.mark.parametrize("row", read_interruptions()[::97])
def test_a_band_is_a_share_a_month(row: InterruptionRow) -> None:
    rate = interruption_rate(row.provider, row.region, row.instance_type)
    assert rate.low < rate.value < rate.high
    assert rate.high.per_hour < 0.0033, "0.9 a month"
    assert rate.source == row.source


def test_without_a_figure_the_prior_is_wide_and_says_that_it_is_assumed() -> None:
    rate = interruption_rate("gcp", "us-central1", "a3-highgpu-8g")
    assert rate.high.per_hour / rate.low.per_hour > 100
    assert "assumed" in rate.source


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(0.0, 0.05, "0% to 5%"), (0.15, 0.2, "15% to 20%"), (0.2, 1.0, "20% to more")],
)
def test_an_eviction_rate_is_a_chance_an_hour(low: float, high: float, text: str) -> None:
    row = eviction(low, high)
    rate = interruption_rate(row.provider, row.region, row.instance_type, row)
    assert rate.low < rate.value < rate.high
    assert rate.high == HourlyChance(min(high, 0.5)).rate()
    assert rate.source == f"{text} an hour: a test, 2026-11-23"
    monthly = interruption_rate("aws", "us-east-1", "p5.48xlarge")
    assert rate.high.per_hour > 15 * monthly.high.per_hour


def test_the_chance_of_a_place_is_that_of_its_spot_machines_alone() -> None:
    often = replace(spot(1, "azure"), eviction=eviction(0.2, 1.0))
    assumed = rate_of(spot(1, "azure")).value.per_hour
    assert rate_of(often).value.per_hour > 10 * assumed
    steady = replace(often, purchase="on-demand")
    assert rate_of(steady) == rate_of(replace(steady, eviction=None))


def test_nodes_of_a_zone_are_taken_away_together() -> None:
    """The market counts once, failures for every accelerator."""
    one, many = rate_of(spot(1, "gcp")), rate_of(spot(16, "gcp"))
    market = interruption_rate("gcp", "us-east-1", "p5.48xlarge").value.per_hour
    failures = one.value.per_hour - market
    assert many.value.per_hour == pytest.approx(market + 16 * failures)


def test_notices_are_those_that_providers_state() -> None:
    assert (notice_s("aws"), notice_s("gcp"), notice_s("azure")) == (120, 30, 30)
    assert notice_s("lambda") is None


@pytest.mark.parametrize(
    ("provider", "until_copied_s", "gigabytes", "chance"),
    [
        # 120 s less 5 s until it is seen: a node writes 100 GB in 100 s at the likely 1 GB/s.
        ("aws", 15.0, 100.0, 0.45),
        ("aws", 15.0, 25.0, 0.81),
        ("aws", 15.0, 400.0, 0.09),
        ("aws", 15.0, 0.001, 0.9),
        ("gcp", 15.0, 10.0, 0.45),
        ("azure", 15.0, 100.0, 0.02),
        ("gcp", 25.0, 0.001, 0.0),
        ("gcp", 3600.0, 0.001, 0.0),
        ("lambda", 1.0, 0.001, 0.0),
    ],
)
def test_a_notice_saves_what_is_written_in_its_time(
    provider: str, until_copied_s: float, gigabytes: float, chance: float
) -> None:
    found = saved_chance(provider, until_copied_s=until_copied_s, bytes_per_node=gigabytes * 1e9)
    assert found == pytest.approx(chance, abs=0.01)


def test_only_interruptions_come_with_notice_and_only_of_runs_that_listen() -> None:
    state = State(checkpoint_bytes=1e9, parts=1, step_s=1.0)
    saved = stops_of(spot(1), state, start_s=300).saved_share
    rate = rate_of(spot(1)).value
    market = interruption_rate("aws", "us-east-1", "p5.48xlarge").value
    chance = saved_chance("aws", until_copied_s=2.0 + 5 + 1 / 3, bytes_per_node=1e9)
    assert saved == pytest.approx(chance * market.per_s / rate.per_s)
    assert 0 < saved < 0.9
    others = (
        (replace(spot(1), purchase="on-demand"), state),
        (spot(1, "lambda"), state),
        (spot(1), replace(state, step_s=None)),
        (spot(1), replace(state, step_s=60.0)),
    )
    assert [stops_of(rented, one, start_s=300).saved_share for rented, one in others] == [0] * 4


def test_work_that_is_saved_makes_a_run_shorter() -> None:
    state = State(checkpoint_bytes=1e9, parts=1, step_s=1.0)
    days_s = 10 * 86_400.0
    training = Estimated(value=days_s, low=days_s, high=days_s, basis="measured")
    listens, does_not = (
        expected_run(training, stops_of(spot(1, "gcp"), one, start_s=300))
        for one in (state, replace(state, step_s=None))
    )
    assert listens.elapsed_s < does_not.elapsed_s
    assert listens.high_s < does_not.high_s
    assert listens.stops == pytest.approx(does_not.stops, rel=0.05)
