"""Months, and how spans of time fall into them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.budget.project.months import Month, hours_until, shares_by_month

START = Month(2027, 1)


@pytest.mark.parametrize("text", ["2027-13", "2027", "Jan 2027", "", "27-01", "2027-00", "x-y"])
def test_what_is_no_month_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="2027-01"):
        Month.parse(text)


def test_a_day_names_its_month() -> None:
    assert Month.parse("2027-02-17") == Month(2027, 2)


def test_months_count_over_the_year() -> None:
    assert str(Month(2027, 11).plus(3)) == "2028-02"
    assert Month(2028, 2).since(Month(2027, 11)) == 3
    assert Month(2028, 2).plus(-2) == Month(2027, 12)


def test_a_leap_year_has_29_days_in_february() -> None:
    assert Month(2028, 2).hours == 29 * 24
    assert hours_until(Month(2028, 2), Month(2028, 3)) == 29 * 24


def test_a_span_over_two_months_is_split_by_its_hours() -> None:
    shares = shares_by_month(START, 30 * 24, 33 * 24)
    assert [str(month) for month, _ in shares] == ["2027-01", "2027-02"]
    assert [share for _, share in shares] == pytest.approx([1 / 3, 2 / 3])


def test_a_span_of_no_length_is_in_one_month() -> None:
    assert shares_by_month(START, 31 * 24, 31 * 24) == [(Month(2027, 2), 1.0)]


@given(
    begin=st.floats(0, 20_000),
    length=st.floats(0.001, 20_000),
)
def test_the_shares_of_a_span_add_up_to_the_whole(begin: float, length: float) -> None:
    shares = shares_by_month(START, begin, begin + length)
    assert sum(share for _, share in shares) == pytest.approx(1)
    assert all(share > 0 for _, share in shares)
    months = [month for month, _ in shares]
    assert months == [months[0].plus(i) for i in range(len(months))]
