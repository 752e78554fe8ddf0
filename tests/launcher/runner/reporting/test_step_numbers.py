"""The numbers of a step are told one step late, each step's own, and only settled times count."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from gpuplan.launcher.runner.processes.control import Agreed
from gpuplan.launcher.runner.reporting.outcome import Outcome
from gpuplan.launcher.runner.reporting.profiling import StepProfiler
from gpuplan.launcher.runner.reporting.report import Report
from gpuplan.launcher.runner.reporting.step_numbers import StepNumbers

PARTS_S = {"forward": 1.0, "backward": 2.0, "checkpoint": 40.0}


class OneProfiledStep:
    """Profiles step 2 alone."""

    def covers(self, step: int) -> bool:
        return step == 2


class Told:
    """A report that keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def step(self, step: int, **facts: Any) -> None:
        self.steps.append({"step": step, **facts})


@pytest.fixture
def outcome() -> Outcome:
    return Outcome(step=0, stopped=False, elapsed_s=0.0)


@pytest.fixture
def numbers(outcome: Outcome) -> StepNumbers:
    return StepNumbers(outcome, cast(StepProfiler, OneProfiledStep()))


def tell(numbers: StepNumbers, step: int, *, is_settled: bool = True) -> None:
    agreed = Agreed(loss=1.0 / step, stop=False, elapsed_s=10.0, write_s=0.0)
    numbers.tell(agreed, step, PARTS_S, before_s=100.0, is_settled=is_settled)


def test_each_step_is_told_with_what_this_process_kept_of_it(numbers: StepNumbers) -> None:
    told = Told()
    numbers.report = cast(Report, told)
    numbers.keep(0.5, torch.tensor(3.0), 1e-3)
    numbers.keep(0.0, None, None)
    tell(numbers, 1)
    assert numbers
    tell(numbers, 2)
    assert not numbers
    first, second = told.steps
    assert (first["waited_s"], first["norm"], first["rate"]) == (0.5, 3.0, 1e-3)
    assert (second["waited_s"], second["norm"], second["rate"]) == (0.0, None, None)
    assert first["elapsed_s"] == 110.0
    assert first["write_s"] is None
    # What runs beside a step is no time of it.
    assert first["step_s"] == 3.0


def test_times_count_where_the_step_is_settled_and_not_profiled(
    numbers: StepNumbers, outcome: Outcome
) -> None:
    for step, is_settled in ((1, False), (2, True), (3, True)):
        numbers.keep(0.0, None, None)
        tell(numbers, step, is_settled=is_settled)
    assert outcome.times_s == [3.0]
    assert outcome.last_loss == pytest.approx(1 / 3)


def test_steps_that_are_run_again_are_forgotten(numbers: StepNumbers) -> None:
    numbers.keep(9.0, None, None)
    numbers.forget()
    assert not numbers
