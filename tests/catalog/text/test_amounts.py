"""Amounts as people write them."""

from decimal import Decimal

import pytest

from gpuplan.catalog.text.amounts import parse_bytes, parse_count, parse_duration_s, parse_usd

HOUR = 3600


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("48h", 48 * HOUR),
        ("2w", 336 * HOUR),
        ("2 weeks", 336 * HOUR),
        ("1 day", 24 * HOUR),
        ("1.5 hours", 1.5 * HOUR),
        ("90 Minutes", 1.5 * HOUR),
        ("30 secs", 30),
    ],
)
def test_units_may_be_written_out(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["2 fortnights", "2026-12-24", "days", "3", "-2 days", "1h30"])
def test_what_is_no_span_is_told_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="90min, 48h, 3d or 2 weeks"):
        parse_duration_s(text)


@pytest.mark.parametrize("text", ["150GB", "1.5 TiB"])
def test_bytes_are_no_count(text: str) -> None:
    """`--dataset-size 150GB` was "not a number above zero"."""
    with pytest.raises(ValueError, match="is a size in bytes; write it as 512"):
        parse_count(text)


def test_a_bare_number_may_have_a_unit_of_its_own() -> None:
    assert parse_duration_s("3", bare_unit="d") == 72 * HOUR


@pytest.mark.parametrize(
    ("text", "usd"),
    [
        ("1,500.50", "1500.50"),
        ("$1,234,567.89", "1234567.89"),
        ("1,000k", "1000000"),
        ("400", "400"),
    ],
)
def test_commas_divide_thousands(text: str, usd: str) -> None:
    assert parse_usd(text) == Decimal(usd)


@pytest.mark.parametrize(
    "text", ["400,50", "12,5", "1.000,50", "1,00", "1,000,00", ",500", "1,,000"]
)
def test_a_comma_elsewhere_is_refused_and_not_dropped(text: str) -> None:
    for parse in (parse_usd, parse_count, lambda one: parse_bytes(f"{one}GB")):
        with pytest.raises(ValueError, match=r"point: 400\.50|not a (number|size)"):
            parse(text)


def test_a_decimal_comma_is_told_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"'1,5' has a comma .* with a point: 400\.50"):
        parse_count("1,5")
    assert parse_count("1,500") == 1500.0
    assert parse_bytes("1,500.5GB") == 1500.5e9
