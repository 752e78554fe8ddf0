"""Which rate of interruptions a spot plan counts with."""

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.interruptions import InterruptionRow, read_interruptions
from gpuplan.planner.goodput.interruptions import interruption_rate, notice_s
from gpuplan.planner.goodput.stops import Rented, rate_of

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


def test_nodes_of_a_zone_are_taken_away_together() -> None:
    """The market counts once, failures for every accelerator."""
    one, many = rate_of(spot(1, "gcp")), rate_of(spot(16, "gcp"))
    market = interruption_rate("gcp", "us-east-1", "p5.48xlarge").value.per_hour
    failures = one.value.per_hour - market
    assert many.value.per_hour == pytest.approx(market + 16 * failures)


def test_notices_are_those_that_providers_state() -> None:
    assert (notice_s("aws"), notice_s("gcp"), notice_s("azure")) == (120, 30, 30)
    assert notice_s("lambda") is None
