"""Money and quantities are shown with the digits that are known, no more."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.text.money import (
    format_money,
    format_money_interval,
    format_money_range,
    format_price,
    round_money_interval,
)
from gpuplan.catalog.text.quantity import (
    format_count,
    format_gib,
    format_hours_range,
    format_memory_use,
    format_seconds,
    format_share,
    format_spread,
)

AMOUNTS = st.floats(min_value=1e-4, max_value=1e9)


@pytest.mark.parametrize(
    ("low", "likely", "high", "text"),
    [
        (3087, 3480, 3961, "$3,100–4,000, likely $3,500"),
        (3430, 3490, 3550, "$3,430–3,550, likely $3,490"),
        (0.4213, 0.4801, 0.5523, "$0.42–0.55, likely $0.48"),
        (9.21, 12.3, 15.7, "$9–16, likely $12"),
        (12.31, 13.2, 14.2, "$12.30–14.20, likely $13.20"),
        (0.0031, 0.0042, 0.0055, "$0.0030–0.0055, likely $0.0040"),
        (0.00071, 0.00086, 0.00101, "$0.00070–0.00100, likely $0.00085"),
        (812_000, 1_250_000, 1_740_000, "$0.8–1.7M, likely $1.2M"),
        (61.6, 74.1, 88.2, "$60–90, likely $75"),
        (-0.4, 2, 12, "$0–12, likely $2"),
        (1e12, 2e12, 3e12, "$1,000,000–3,000,000M, likely $2,000,000M"),
        (500, 500, 500, "$500"),
        (0.526, 0.526, 0.526, "$0.526"),
    ],
)
def test_an_interval_shows_the_digits_it_supports(low, likely, high, text) -> None:
    assert format_money_interval(low, likely, high) == text


@given(st.lists(AMOUNTS, min_size=3, max_size=3).map(sorted))
def test_rounding_keeps_the_order_and_moves_nothing_further_than_an_eighth(amounts) -> None:
    low, likely, high = amounts
    rounded = round_money_interval(low, likely, high)
    assert list(rounded) == sorted(rounded)
    if high > low:
        for exact, shown in zip(amounts, rounded, strict=True):
            assert abs(float(shown) - exact) <= (high - low) / 8 * 1.000001


def test_a_column_shows_the_range_alone() -> None:
    assert format_money_range(3087, 3480, 3961) == "$3,100–4,000"
    assert format_money_range(7, 7, 7) == "$7"


def test_an_unknown_price_is_never_zero() -> None:
    assert format_money_interval(None, None, None) == "price unknown"
    assert format_money_range(1.0, None, 2.0) == "?"
    assert format_price(None) == format_money(None) == "?"


def test_a_stated_price_keeps_its_cents() -> None:
    assert format_price(23.92) == "$23.92"
    assert format_price(Decimal("1913.6")) == "$1,913.60"
    assert format_price(0.526) == "$0.526"


def test_single_amounts_have_three_digits() -> None:
    assert format_money(3478.2) == "$3,478"
    assert format_money(0.004218) == "$0.00422"
    assert format_money(0) == "$0"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4118, "412 ms"),
        (1.236, "1.24 s"),
        (3.5e-5, "35.0 µs"),
        (12.04, "12.0 s"),
        (0.0, "0 s"),
    ],
)
def test_seconds(seconds, text) -> None:
    assert format_seconds(seconds) == text


def test_hours_take_the_unit_of_the_likely_value() -> None:
    assert format_hours_range(31.2, 34, 38.4) == "31–38 h"
    assert format_hours_range(0.7, 0.8, 0.92) == "42–55 min"
    assert format_hours_range(122, 131, 152) == "5.1–6.3 days"
    assert format_hours_range(31.2, 31.2, 31.2) == "31 h"
    assert format_hours_range(0.006, 0.008, 0.011) == "22–40 s"


def test_memory_is_in_gib() -> None:
    assert format_gib(80e9) == "74.5 GiB"
    assert format_memory_use(2**30, 2**30 * 192) == "1.0/192 GiB"


def test_counts_and_shares() -> None:
    assert format_count(124_439_808) == "124M"
    assert format_count(8_030_261_248) == "8.03B"
    assert format_count(512) == "512"
    assert format_share(0.412) == "41 %"
    assert format_share(None) == "?"
    assert format_spread(0.4, 0.36, 0.44) == "±10 %"


@pytest.mark.parametrize(
    ("low", "likely", "high", "text"),
    [
        (1_810_000, 2_050_000, 2_300_000, "$1.8–2.3M"),
        (950_000, 1_000_000, 1_200_000, "$0.95–1.20M"),
        (900_000, 1_000_000, 1_200_000, "$0.9–1.2M"),
        (1_500_000, 1_500_000, 1_500_000, "$1.5M"),
        (11_000_000, 12_000_000, 14_000_000, "$11–14M"),
    ],
)
def test_millions_have_a_suffix_in_a_column(
    low: float, likely: float, high: float, text: str
) -> None:
    assert format_money_range(low, likely, high) == text
