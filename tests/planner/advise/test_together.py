"""Everything free at once: a plan that runs, with the risks of what it is made of."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.advise import other_machines as machines
from gpuplan.planner.advise import together as at_once
from gpuplan.planner.advise.printed_options import all_options
from gpuplan.planner.advise.today.setting import Replanner, Setting
from gpuplan.planner.advise.today.todays_setting import setting_of
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.profiles.profile import Profile

CATALOGUE = load_catalogue()
TODAY = Question(
    work=Work(samples=1e6),
    machine=Machine(providers=("aws",), instances=("p4d.24xlarge",)),
    choices=Choices(micro_batches=(4,), grad_accums=(2,), precisions=("fp32",)),
)


@pytest.fixture(scope="module")
def toy(make_rigid_decoder: Callable[..., Profile]) -> Profile:
    return make_rigid_decoder()


def planned(profile: Profile) -> tuple[Setting, Plan, Replanner]:
    setting, _ = setting_of(TODAY, profile, CATALOGUE)
    replanner = Replanner(profile, work=TODAY.work, money=Money())
    return setting, replanner.plan(setting), replanner


def answering(monkeypatch: pytest.MonkeyPatch, *plans: Plan) -> list[bool]:
    """Let the search find these plans; return whether only what runs was asked for, each time."""
    asked: list[bool] = []

    def search(question: Question, *_: Any, **__: Any) -> Any:
        asked.append(question.runnable)
        found = [one for one in plans if one.runnable or not question.runnable]
        return SimpleNamespace(plans=found)

    monkeypatch.setattr(machines, "search", search)
    return asked


def test_a_plan_that_nobody_can_run_is_taken_only_where_none_runs(
    toy: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a mixture of experts the cheapest was dp8.zero2.ep8, which is predicted, not run."""
    setting, today, replanner = planned(toy)
    why = {"runnable": False, "why_not_runnable": "Expert parallelism is predicted, not run."}
    quick = replanner.plan(replace(setting, setup=replace(setting.setup, precision="bf16-amp")))
    not_run = quick.model_copy(update=why)
    asked = answering(monkeypatch, not_run, today)
    assert machines.everything_free(setting, today, replanner, CATALOGUE) is today
    assert asked == [True, True]
    answering(monkeypatch, not_run)
    found = at_once.together(setting, today, replanner, CATALOGUE, (), accepted=0.02)
    assert found is not None and found.plan is not_run
    said = "`gpuplan run` does not carry it out: Expert parallelism is predicted, not run"
    assert said in found.risks
    others = machines.other_machines(setting, today, replanner, CATALOGUE, Machine())
    elsewhere = not_run.model_copy(update={"nodes": 2, "id": "other"})
    answering(monkeypatch, elsewhere)
    assert [said in one.risks for one, _ in others] == [True]


def test_it_has_the_risks_of_every_single_change_in_it(
    toy: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, today, replanner = planned(toy.model_copy(update={"mixes_samples": True}))
    setup = replace(
        setting.setup,
        micro_batch=2,
        grad_accum=4,
        precision="bf16-amp",
        stack="torch-compile",
        compile=True,
    )
    answering(monkeypatch, replanner.plan(replace(setting, setup=setup)))
    found = at_once.together(setting, today, replanner, CATALOGUE, (), accepted=0.02)
    assert found is not None
    first, *others = found.risks
    assert first.startswith("several things change at once")
    assert [one.split()[0] for one in others] == ["products", "the", "the"]
    assert others[1].startswith("the first step compiles")
    assert others[2] == "the loss compares 2 samples at a time"
    assert found.alters_training
    assert not [one for one in found.risks if "host" in one or "16 bits" in one]


def test_options_name_the_optimizer_and_what_is_offloaded(toy: Profile) -> None:
    setting, today, _ = planned(toy)
    text = all_options(today, setting)
    assert "--optimizer" not in text and "--offload" not in text
    assert f"--precision {today.precision} --recompute none" in text and "compile" in text
    other = replace(setting, setup=replace(setting.setup, optimizer="sgd"))
    plan = today.model_copy(update={"offloaded": ("optimizer", "parameters"), "offload": True})
    text = all_options(plan, other)
    assert text.endswith(" --optimizer sgd --offload optimizer,parameters")
