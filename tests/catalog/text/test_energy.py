"""Electricity and emissions as text: rounded as their interval supports, never 0 for unknown."""

import pytest

from gpuplan.catalog.text.energy import format_co2e_interval, format_interval, format_kg


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((1234.0, 1400.0, 1612.0), "1,250–1,600 kWh, likely 1,400"),
        ((21.8, 29.9, 41.8), "22–42 kWh, likely 30"),
        ((0.0123, 0.0151, 0.0192), "0.012–0.019 kWh, likely 0.015"),
        ((10.0, 10.0, 10.0), "10.00 kWh"),
    ],
)
def test_digits_are_those_that_the_interval_supports(
    ends: tuple[float, float, float], text: str
) -> None:
    assert format_interval(*ends, "kWh") == text


def test_from_a_tonne_on_it_is_tonnes() -> None:
    assert format_co2e_interval(800.0, 999.0, 1200.0).endswith("kg CO2e, likely 1,000")
    assert format_co2e_interval(800.0, 1001.0, 1200.0) == "0.8–1.2 t CO2e, likely 1.0"


@pytest.mark.parametrize(
    ("kg", "text"),
    [(None, "?"), (0.0, "0"), (0.00234, "0.0023"), (5.14, "5.1"), (1234.0, "1,200"), (45, "45")],
)
def test_kilograms_have_two_digits(kg: float | None, text: str) -> None:
    assert format_kg(kg) == text
