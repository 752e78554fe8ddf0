"""The 80 % interval of a step: wider where more can be wrong, and where less was seen."""

import math

import pytest

from gpuplan.planner.constants import Constants
from gpuplan.planner.predict.interval import doubt, familiarity, step_interval
from gpuplan.planner.validation.folds import fitted_accelerators
from gpuplan.profiles.curves.user_curves import without_curves_of

FORM = {"form.torch-eager": 1.0}
USUAL = Constants.shipped()


def width(doubts: dict[str, float], accelerator: str = "A100-80GB-SXM") -> float:
    time = step_interval(2.0, doubts, USUAL, accelerator=accelerator)
    assert time.low < time.value < time.high
    assert math.isclose(time.value / time.low, time.high / time.value)
    return time.high / time.value


def test_every_doubt_widens_the_interval():
    for name in ("curves", "memory", "launch", "communication", "pipeline", "experts", "old"):
        assert width({**FORM, name: 0.5}) > width({**FORM, name: 0.1}) > width(FORM), name


def test_doubts_add_in_quadrature():
    one, other = doubt(FORM, USUAL), doubt({"launch": 1.0}, USUAL)
    assert doubt({**FORM, "launch": 1.0}, USUAL) == pytest.approx(math.hypot(one, other))


def test_an_accelerator_that_no_published_run_used_is_never_surer():
    assert "A100-80GB-SXM" in fitted_accelerators()
    assert familiarity("A100-80GB-SXM") == "seen"
    assert familiarity("TPU-v9") == "unseen"
    assert width(FORM, "TPU-v9") >= width(FORM)


def test_a_device_that_is_judged_as_unknown_counts_as_unseen():
    with without_curves_of(["A100-80GB-SXM"]):
        assert familiarity("A100-80GB-SXM") == "unseen"


def test_an_unknown_doubt_is_refused():
    with pytest.raises(KeyError):
        doubt({"moon": 1.0}, USUAL)


def test_nothing_takes_no_time_for_sure():
    time = step_interval(0.0, FORM, USUAL, accelerator="A100-80GB-SXM")
    assert time.low == time.value == time.high == 0.0
