"""Padding an odd vocabulary is proposed, and predicted as a trace of the padded model is."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.advise.advise import advise
from gpuplan.planner.advise.changes import proposals
from gpuplan.planner.advise.odd_width import widths_to_pad
from gpuplan.planner.advise.today.setting import Replanner, Setting
from gpuplan.planner.advise.today.todays_setting import setting_of
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLES = Path(__file__).parents[3] / "examples"
CATALOGUE = load_catalogue()
ODD, EVEN = 50257, 50304
TODAY = Question(
    work=Work(samples=1e7),
    machine=Machine(providers=("aws",), instances=("p5.48xlarge",)),
    choices=Choices(micro_batches=(16,), precisions=("bf16-amp",)),
)


def traced(vocabulary: int) -> Profile:
    params = {"layers": 2, "hidden": 768, "heads": 12, "seq_len": 256, "vocab": vocabulary}
    spec = parse_model_spec(str(EXAMPLES / "gpt2.py"), params=params)
    return make_profile(spec, numerics=("fp32", "amp16"))


@pytest.fixture(scope="module")
def odd() -> Profile:
    return traced(ODD)


@pytest.fixture(scope="module")
def today(odd: Profile) -> Setting:
    return setting_of(TODAY, odd, CATALOGUE)[0]


def with_setup(setting: Setting, **changes: object) -> Setup:
    return replace(setting.setup, **changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_it_is_predicted_as_a_trace_of_the_padded_model_is(odd: Profile, today: Setting) -> None:
    found = proposals(today, odd, fits=True, waits=False)
    (padded,) = [one.setting for one in found if one.kind == "odd_width"]
    ours = Replanner(odd, work=TODAY.work, money=Money())
    theirs = Replanner(traced(EVEN), work=TODAY.work, money=Money())
    expected_s = theirs.plan(today).step_time_s.value
    assert ours.plan(padded).step_time_s.value == pytest.approx(expected_s, rel=0.005)
    assert ours.plan(today).step_time_s.value > 1.2 * expected_s


@pytest.mark.slow
def test_it_is_ranked_by_what_it_saves_with_the_lines_to_change(odd: Profile) -> None:
    found = advise(TODAY, odd, CATALOGUE)
    (change,) = [one for one in found.changes if one.kind == "odd_width"]
    assert change.verdict == "saves" and not change.alters_training
    assert change.usd_saved is not None and change.usd_saved > 0
    assert change.text == "odd width 50,257 → 50,304"
    assert change.lines[0] == "width = 50304  # where the file has 50257"
    costs = [one.usd_saved or 0 for one in found.changes if one.verdict == "saves"]
    assert change.usd_saved in costs[:4]


@pytest.mark.slow
def test_nothing_is_padded_where_nothing_is_slow(odd: Profile, today: Setting) -> None:
    assert widths_to_pad(today.setup, odd) == [ODD]
    for changes in ({"precision": "tf32"}, {"stack": "torch-compile"}, {"compile": True}):
        assert widths_to_pad(with_setup(today, **changes), odd) == []
    assert widths_to_pad(today.setup, traced(1001)) == [], "1,024 is 2.3 % more work"
