"""Channels-last order is proposed for convolutions of images, and predicted as a trace of it is."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.advise.changes import proposals
from gpuplan.planner.advise.judgement import judged
from gpuplan.planner.advise.today.memory_order import takes_images_in_plain_order
from gpuplan.planner.advise.today.setting import Replanner, Setting
from gpuplan.planner.advise.today.todays_setting import setting_of
from gpuplan.planner.advise.wording import sentence
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLES = Path(__file__).parents[4] / "examples"
CATALOGUE = load_catalogue()
TODAY = Question(
    work=Work(samples=1e7),
    machine=Machine(providers=("aws",), instances=("p4d.24xlarge",)),
    choices=Choices(micro_batches=(64,), precisions=("bf16-amp",)),
)


def traced(*, channels_last: bool) -> Profile:
    params = {"channels_last": channels_last}
    spec = parse_model_spec(str(EXAMPLES / "resnet50.py"), params=params)
    return make_profile(spec, numerics=("amp16", "fp32"))


@pytest.fixture(scope="module")
def plain() -> Profile:
    return traced(channels_last=False)


@pytest.fixture(scope="module")
def today(plain: Profile) -> Setting:
    return setting_of(TODAY, plain, CATALOGUE)[0]


def of_order(setting: Setting, profile: Profile) -> list[Setting]:
    found = proposals(setting, profile, fits=True, waits=False)
    return [one.setting for one in found if one.kind == "memory_order"]


@pytest.mark.slow
def test_it_is_predicted_as_a_trace_of_it_is(plain: Profile, today: Setting) -> None:
    own = traced(channels_last=True)
    assert not takes_images_in_plain_order(own)
    (turned,) = of_order(today, plain)
    money = Money()
    expected = Replanner(own, work=TODAY.work, money=money).plan(today).step_time_s.value
    replanner = Replanner(plain, work=TODAY.work, money=money)
    found = replanner.plan(turned).step_time_s.value
    assert found == pytest.approx(expected, rel=0.02)
    assert found < 0.8 * replanner.plan(today).step_time_s.value


@pytest.mark.slow
def test_it_is_told_with_the_lines_and_alters_nothing(plain: Profile, today: Setting) -> None:
    found = proposals(today, plain, fits=True, waits=False)
    (wanted,) = [one for one in found if one.kind == "memory_order"]
    replanner = Replanner(plain, work=TODAY.work, money=Money())
    change = judged(wanted, replanner.plan(wanted.setting), replanner.plan(today))
    assert change.verdict == "saves" and not change.alters_training
    assert all("torch.channels_last" in line for line in change.lines)
    assert sentence(change).startswith("Keep images and weights in channels-last order: ")


@pytest.mark.slow
def test_it_is_not_told_of_what_is_compiled_or_has_no_images(
    plain: Profile, today: Setting, small_decoder: Profile
) -> None:
    compiled = replace(today, setup=replace(today.setup, stack="torch-compile", compile=True))
    assert of_order(compiled, plain) == []
    assert not takes_images_in_plain_order(small_decoder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((3, 224, 224), True),
        ((4, 3, 480, 640), True),  # Four cameras.
        ((1, 128, 128, 128), False),  # A volume.
        ((1, 24000), False),
    ],
)
def test_images_are_told_from_volumes_and_sound(
    shape: tuple[int, ...], told: bool, plain: Profile
) -> None:
    batch = tuple(one.model_copy(update={"sample_shape": shape}) for one in plain.batch_tensors)
    assert takes_images_in_plain_order(plain.model_copy(update={"batch_tensors": batch})) is told
