"""What --profile-steps takes, and refuses."""

from __future__ import annotations

import click
import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.cli.options.values.step_range import StepRange
from gpuplan.launcher.runner.training_options import TrainingOptions


@pytest.mark.parametrize(("text", "steps"), [("10:12", (10, 12)), (" 7 ", (7, 7))])
def test_steps_are_given_as_first_and_last(text: str, steps: tuple[int, int]) -> None:
    assert StepRange()(text) == steps


@pytest.mark.parametrize("text", ["0:3", "5:4", "1:51", "a:b", "-1:3", "3:"])
def test_what_are_no_steps_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="steps"):
        StepRange()(text)


def test_steps_behind_the_last_one_are_refused() -> None:
    TrainingOptions(profile_steps=(5, 9)).refuse_beyond(5)
    with pytest.raises(UsageError, match="begins after the last of 4 steps"):
        TrainingOptions(profile_steps=(5, 9)).refuse_beyond(4)
