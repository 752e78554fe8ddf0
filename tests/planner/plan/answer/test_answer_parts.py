"""Parts of an answer: the dates of its prices, and what is trained."""

from datetime import date

import pytest

from gpuplan.planner.plan.answer.answer_parts import PriceDates, WorkloadFacts


@pytest.mark.parametrize(
    ("oldest", "newest", "by_year", "shown"),
    [
        (date(2026, 1, 1), date(2026, 7, 3), True, "2026 to 2026-07"),
        (date(2026, 1, 1), date(2026, 1, 1), True, "2026"),
        (date(2025, 1, 1), date(2026, 1, 1), True, "2025 to 2026"),
        (date(2025, 3, 9), date(2026, 7, 3), True, "2025-03 to 2026-07"),
        (date(2026, 1, 1), date(2026, 1, 1), False, "2026-01"),
        (date(2026, 7, 1), date(2026, 7, 31), False, "2026-07"),
    ],
)
def test_a_price_known_by_its_year_is_never_shown_as_one_of_january(
    oldest: date, newest: date, by_year: bool, shown: str
) -> None:
    assert PriceDates(oldest=oldest, newest=newest, by_year=by_year).text() == shown


def test_dates_are_shown_in_the_form_that_is_asked_for() -> None:
    prices = PriceDates(oldest=date(2025, 1, 1), newest=date(2026, 7, 3), by_year=True)
    assert prices.text("%Y-%m-%d") == "2025 to 2026-07-03"


@pytest.mark.parametrize(
    ("trained", "shown"),
    [
        (70_600_000_000, "70.6B parameters"),
        (70_590_000_000, "70.6B parameters"),
        (16_400_000, "70.6B parameters, 16.4M of them trained"),
    ],
)
def test_parameters_say_how_many_of_them_are_trained(trained: int, shown: str) -> None:
    work = WorkloadFacts(
        name="llama",
        parameters=70_600_000_000,
        trainable_parameters=trained,
        flops_per_sample=1.0,
        tokens_per_sample=None,
    )
    assert work.parameters_text == shown
