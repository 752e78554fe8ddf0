"""The question of an answer in words."""

from datetime import date

import pytest
from answers import make_ranked_estimate

from gpuplan.planner.plan.asked_words import dates, span_of_dates, work_items


@pytest.mark.parametrize(
    ("value", "item"),
    [
        ("r=16,alpha=8,targets=q_proj+v_proj", "LoRA r=16 on q_proj, v_proj"),
        (4, "lora=4"),  # A model file's own param of that name.
        (True, "lora=True"),
    ],
)
def test_adapters_are_named_as_people_name_them(value: object, item: str) -> None:
    asked = make_ranked_estimate().question
    assert asked is not None
    with_lora = asked.model_copy(update={"params": {"lora": value}})
    assert work_items(with_lora, None)[0] == item


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
    assert span_of_dates(oldest, newest, by_year=by_year) == shown
    assert dates(oldest, newest, by_year=by_year) == f"prices of {shown}"


def test_dates_are_shown_in_the_form_that_is_asked_for() -> None:
    span = span_of_dates(date(2025, 1, 1), date(2026, 7, 3), by_year=True, form="%Y-%m-%d")
    assert span == "2025 to 2026-07-03"
