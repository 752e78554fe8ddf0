"""What advice proposes for parameters that are not trained."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.advise.advise import advise
from gpuplan.planner.advise.changes import proposals
from gpuplan.planner.advise.today.setting import Setting
from gpuplan.planner.advise.today.todays_setting import question_of, setting_of
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.profiles.profile import Profile

CATALOGUE = load_catalogue()
EXAMPLE = Path(__file__).parents[3] / "examples" / "lora.py"
TODAY = Question(
    work=Work(samples=1e6),
    machine=Machine(providers=("aws",), instances=("p4d.24xlarge",)),
    choices=Choices(micro_batches=(1,), precisions=("bf16-amp",)),
)


def adapters(make_decoder: Callable[..., Profile]) -> Profile:
    profile = make_decoder(trainable=0.01)
    base = profile.step("amp16").model_copy(update={"numerics": "frozen16"})
    return profile.model_copy(update={"steps": (*profile.steps, base)})


def proposed(setting: Setting, profile: Profile) -> list[str]:
    found = proposals(setting, profile, fits=True, waits=False)
    return [one.text for one in found if one.text.startswith("frozen")]


def test_a_frozen_base_is_proposed_in_fewer_bits(make_decoder: Callable[..., Profile]) -> None:
    profile = adapters(make_decoder)
    today, _ = setting_of(TODAY, profile, CATALOGUE)
    texts = ["frozen parameters fp32 → bf16", "frozen parameters fp32 → nf4"]
    assert proposed(today, profile) == texts
    in_bf16 = replace(today, setup=replace(today.setup, frozen_precision="bf16"))
    assert proposed(in_bf16, profile) == ["frozen parameters bf16 → nf4"]
    in_fp32 = replace(today, setup=replace(today.setup, precision="fp32"))
    assert proposed(in_fp32, profile) == []
    assert proposed(today, make_decoder()) == []


@pytest.mark.slow
def test_today_s_base_is_that_of_the_plan() -> None:
    sizes = {"layers": 2, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 512, "vocab": 1000}
    params = sizes | {"seq_len": 128}
    profile = api.profile(EXAMPLE, params=params, numerics=("amp16", "fp32", "pure16"))
    asked = replace(TODAY, choices=replace(TODAY.choices, frozen_precisions=("bf16",)))
    outcome = advise(asked, profile, CATALOGUE)
    assert outcome.today.frozen_precision == "bf16"
    assert question_of(outcome.today).choices.frozen_precisions == ("bf16",)
    machines = [one.plan for one in outcome.changes if one.kind == "machine"]
    assert machines and {plan.frozen_precision for plan in machines} == {"bf16"}
