"""The factor on kernel times: the one that was put in comes out, and held-out errors are honest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.validation.fit_factor import (
    LARGEST_FACTOR,
    best_factor,
    held_out_error,
    predicted_with,
    tried_factors,
)

COMPUTE_S = np.array([1.0, 2.0, 0.3, 0.7])
REST_S = np.array([0.1, 0.0, 0.2, 0.05])


def predict(factor: float) -> list[float]:
    return list(factor * COMPUTE_S + REST_S)


def test_the_factors_that_are_tried_hold_one() -> None:
    factors = tried_factors()
    assert factors[0] == pytest.approx(1 / LARGEST_FACTOR) and 1.0 in factors
    assert list(factors) == sorted(factors)


@given(st.floats(0.55, 1.8))
def test_what_was_put_in_comes_out(factor: float) -> None:
    steps = predicted_with(predict(factor), predict)
    assert best_factor(steps) == pytest.approx(factor, rel=0.01)
    assert held_out_error(steps) < 0.01


def test_one_run_that_is_far_off_does_not_move_it() -> None:
    measured = predict(1.1)
    measured[0] *= 3
    assert best_factor(predicted_with(measured, predict)) == pytest.approx(1.1, rel=0.02)


def test_noise_around_one_is_no_better_held_out() -> None:
    measured = np.array(predict(1.0)) * [1.08, 0.93, 1.02, 0.96]
    steps = predicted_with(list(measured), predict)
    before = float(np.mean(np.abs(steps.errors(1.0))))
    assert held_out_error(steps) >= before
