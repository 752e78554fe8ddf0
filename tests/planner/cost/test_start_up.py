"""How unsure the start of machines makes a job: much of a short one, nothing of a long one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.cost.billing import Lengths
from gpuplan.planner.cost.start_up import (
    ends_with_start_s,
    run_without_start_s,
    start_up_s,
    startups,
    with_all_starts,
)


def test_a_short_job_is_as_unsure_as_its_start() -> None:
    start_s = start_up_s()
    low_s, high_s = ends_with_start_s(60.0, 50.0, 70.0)
    assert low_s < 0.6 * (start_s + 60.0)
    assert high_s > 2 * (start_s + 60.0)
    assert high_s < sum(one.high_s for one in startups()) + 70.0, "not every start is the slowest"


def test_nobody_provisions_a_machine_of_ones_own() -> None:
    rented, own = startups(), startups(is_own=True)
    assert [one.name for one in rented] == ["provisioning", "setup", "staging"]
    assert own == rented[1:]
    assert start_up_s() - start_up_s(is_own=True) == rented[0].value_s
    low_s, high_s = ends_with_start_s(3600.0, 3600.0, 3600.0, is_own=True)
    assert (low_s, high_s) == pytest.approx((3660.0, 4511.9), abs=0.1)
    again = run_without_start_s(3600.0 + start_up_s(is_own=True), low_s, high_s, is_own=True)
    assert again == pytest.approx((3600.0, 3600.0, 3600.0))


def test_a_long_job_is_as_unsure_as_its_run() -> None:
    start_s = start_up_s()
    low_s, high_s = ends_with_start_s(1e6, 0.8e6, 1.2e6)
    assert (low_s, high_s) == pytest.approx((start_s + 0.8e6, start_s + 1.2e6), rel=1e-4)


@given(ran_s=st.floats(1, 1e8), shorter=st.floats(0, 0.9), longer=st.floats(0, 5))
def test_the_run_is_found_again_in_what_it_made_with_its_start(
    ran_s: float, shorter: float, longer: float
) -> None:
    start_s = start_up_s()
    low_s, high_s = ran_s * (1 - shorter), ran_s * (1 + longer)
    found = run_without_start_s(start_s + ran_s, *ends_with_start_s(ran_s, low_s, high_s))
    assert found == pytest.approx((ran_s, low_s, high_s), rel=1e-3, abs=1e-2)


def test_bills_that_are_rounded_up_are_as_unsure_as_the_start() -> None:
    start_s = start_up_s()
    exactly = Lengths(
        spread_s=0.0, stops=0.0, chance_within=lambda seconds: float(seconds >= start_s + 60.0)
    )
    spread = with_all_starts(exactly)
    low_s, high_s = ends_with_start_s(60.0, 60.0, 60.0)
    assert spread.chance_within(low_s) == pytest.approx(0.1, abs=0.05)
    assert spread.chance_within(high_s) == pytest.approx(0.9, abs=0.05)


def test_the_page_on_answers_says_how_long_machines_start() -> None:
    low_s, high_s = ends_with_start_s(0.0, 0.0, 0.0)
    said = (
        f"start in {low_s / 60:.0f} to {high_s / 60:.0f} minutes where {start_up_s() / 60:.0f} are"
    )
    page = Path(__file__).parents[3] / "docs" / "how-to-read-an-answer.md"
    assert said in page.read_text(encoding="utf-8")
