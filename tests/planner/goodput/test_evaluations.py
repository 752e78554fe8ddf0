"""What evaluations take beside the steps of a run, and where it goes."""

import numpy as np
import pytest
from answers import make_stops
from simulated_runs import a_case, compared

from gpuplan.planner.goodput.evaluations import (
    Evaluations,
    ForwardShare,
    evaluations_of,
    forward_share,
    respaced,
)
from gpuplan.planner.goodput.expected_run import expected_run
from gpuplan.planner.goodput.priors import beside_steps, prior
from gpuplan.planner.plan.parts import Estimated, Evaluation
from gpuplan.planner.plan.question import Work
from gpuplan.profiles.profile import Profile

THIRD = ForwardShare(value=1 / 3, low=1 / 4, high=1 / 2)


def counted(every: int, samples: int, **run: float | None) -> Evaluation:
    """Return what evaluations of a run take: by default 1,000 steps of 64 samples on 4 ranks."""
    asked = Evaluations(every_steps=every, samples=samples, forward=THIRD)
    fields = {"micro_batch": 16, "global_batch": 64, "steps": 1000} | run
    return asked.of(4, **fields)  # pyright: ignore[reportArgumentType]


def test_an_evaluation_on_a_batch_takes_the_forward_pass_of_a_step() -> None:
    """By hand: 10 evaluations on 6,400 samples are 1,000 forward passes of 64, a third of steps."""
    assert counted(100, 6400).share == pytest.approx(1 / 3)
    assert counted(100, 640).share_low == pytest.approx(1 / 40)
    assert counted(100, 640).share_high == pytest.approx(1 / 20)


def test_one_more_is_made_at_the_end_and_the_last_batch_of_all_ranks_is_full() -> None:
    # After 400, 800 and 1,000 steps.
    assert counted(400, 6400).share == pytest.approx(3 / 10 / 3)
    assert counted(400, 6400, steps=None).share == pytest.approx(2.5 / 10 / 3)
    assert counted(100, 6401).share == pytest.approx(6464 / 6400 / 3)
    assert counted(100, 1).share == counted(100, 64).share


def test_a_forward_pass_that_is_run_twice_makes_the_step_longer_and_not_the_evaluation() -> None:
    # Of 1 + 2 + 1 thirds of a step it is one quarter.
    assert counted(100, 6400, recomputed=1.0).share == pytest.approx(1 / 4)


def test_other_steps_between_evaluations_take_their_share() -> None:
    other = respaced(counted(100, 6400), 400, 1000)
    assert other.model_dump() == pytest.approx(counted(400, 6400).model_dump())
    assert respaced(counted(100, 6400), 50, None).share == pytest.approx(2 / 3)


def test_nothing_is_counted_of_which_the_question_says_too_little(small_decoder: Profile) -> None:
    profile = small_decoder
    assert evaluations_of(Work(steps=100), profile) is None
    assert evaluations_of(Work(steps=100, eval_every=10), profile) is None
    known = evaluations_of(Work(steps=100, eval_every=10, eval_samples=5), profile)
    assert known is not None and known.forward == forward_share(profile)
    assert 0 < known.forward.low < known.forward.value < known.forward.high < 1
    assert known.forward.value == pytest.approx(1 / 3, abs=0.15)


def test_the_line_is_the_share_of_the_steps_and_slow_steps_stay() -> None:
    steps = Estimated(value=1e5, low=9e4, high=1.1e5, basis="analytic")
    exactly = Evaluation(every_steps=1, samples=1, share=0.1, share_low=0.1, share_high=0.1)
    assumed, run = (
        expected_run(steps, make_stops()),
        expected_run(steps, make_stops(evaluation=exactly)),
    )
    assert assumed.evaluation_s is None
    assert run.evaluation_s == pytest.approx(0.1 * run.training_s)
    slow_s = run.beside_s - (run.evaluation_s or 0)
    assert 0.005 < slow_s / run.training_s < assumed.beside_s / run.training_s
    assert beside_steps(exactly).value == prior("slow_steps").value + 0.1
    assert run.low_s > assumed.low_s + 0.05 * run.training_s
    few = Evaluation(every_steps=1, samples=1, share=1e-6, share_low=1e-6, share_high=1e-6)
    assert expected_run(steps, make_stops(evaluation=few)).elapsed_s < assumed.elapsed_s


def test_the_closed_form_with_evaluations_is_near_the_simulation() -> None:
    rng = np.random.default_rng(23)
    known = Evaluation(every_steps=500, samples=1, share=0.2, share_low=0.13, share_high=0.3)
    cases = [a_case(place % 2, rng) for place in range(12)]
    cases = [
        one.__class__(**{**vars(one), "stops": one.stops.model_copy(update={"evaluation": known})})
        for one in cases
    ]
    found = [one for zones in (0, 1) for one in compared(cases[zones::2], 3000, rng)]
    assert max(abs(one.mean) for one in found) <= 0.1
    assert max(abs(one.chance) for one in found) <= 0.03
    assert all(0.76 <= one.coverage <= 0.84 for one in found)
