"""From watts to kWh and kg CO2e: units, what is assumed, what is not known."""

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Region
from gpuplan.planner.energy.carbon import (
    Grid,
    energy_kwh,
    grid_of,
    kg_co2e,
    per_million,
    pue_of,
)
from gpuplan.planner.energy.power import Ranged, stated_power

POWER = stated_power(training_w=10_000, idle_w=2_000)
HOUR = Ranged.exactly(3600)


def region(grid: float | None, source: str | None) -> Region:
    return Region(
        provider="x", name="y", jurisdiction=None, grid_kg_co2e_per_kwh=grid, source=source
    )


def test_ten_kilowatts_for_an_hour_are_ten_kilowatt_hours_times_the_building() -> None:
    found = energy_kwh(POWER, nodes=3, training_s=HOUR, pue=pue_of(1.1))
    assert found.value == pytest.approx(33.0)
    assert found.low == pytest.approx(33.0) == pytest.approx(found.high)


def test_the_start_draws_idle_power() -> None:
    started = energy_kwh(POWER, nodes=1, training_s=HOUR, idle_s=1800, pue=pue_of(1.0))
    assert started.value == pytest.approx(10.0 + 1.0)


def test_a_seller_without_a_pue_has_the_range_of_data_centres() -> None:
    assumed, stated = pue_of(None), pue_of(1.135)
    assert assumed.is_assumed and (assumed.range.low, assumed.range.high) == (1.1, 1.6)
    assert not stated.is_assumed and stated.range == Ranged.exactly(1.135)
    found = energy_kwh(POWER, nodes=1, training_s=HOUR, pue=assumed)
    assert (found.low, found.high) == (pytest.approx(11.0), pytest.approx(16.0))


def test_a_longer_interval_of_time_widens_that_of_energy() -> None:
    hours = Ranged(value=3600, low=3000, high=4500)
    found = energy_kwh(POWER, nodes=1, training_s=hours, pue=pue_of(None))
    alone = energy_kwh(POWER, nodes=1, training_s=HOUR, pue=pue_of(None))
    assert found.low < alone.low and found.high > alone.high
    assert found.high < 10 * 4500 / 3600 * 1.6


def test_the_year_and_source_of_a_grid_are_read_from_its_region() -> None:
    aws = grid_of(load_catalogue().regions["aws", "us-east-1"])
    assert aws == Grid(
        kg_co2e_per_kwh=0.3791,
        year="2021-2023",
        source="cloud-carbon-footprint (Apache-2.0)",
    )
    told = grid_of(region(0.2, "my contract"))
    assert told == Grid(kg_co2e_per_kwh=0.2, year=None, source="my contract")


def test_every_shipped_grid_has_a_year_and_a_source() -> None:
    grids = [grid_of(one) for one in load_catalogue().regions.values()]
    known = [one for one in grids if one is not None]
    assert len(known) > 90
    assert all(one.year and one.source for one in known)


def test_an_unknown_grid_is_unknown_and_not_zero() -> None:
    energy = Ranged(value=10, low=8, high=12)
    assert grid_of(None) is None and grid_of(region(None, "x")) is None
    assert kg_co2e(energy, None) is None
    found = kg_co2e(energy, Grid(kg_co2e_per_kwh=0.5, year=None, source=None))
    assert found == Ranged(value=5, low=4, high=6)


def test_intensity_is_per_million_and_unknown_where_either_is() -> None:
    assert per_million(5.0, 2e6) == 2.5
    assert per_million(None, 2e6) is None
    assert per_million(5.0, None) is None
