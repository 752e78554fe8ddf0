"""In which precisions the base of adapters is tried, and which plans come of it."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.ids import plan_id
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.search.candidate import Candidate
from gpuplan.planner.search.frozen_ways import (
    Way,
    refuse_nothing_frozen,
    ways_to_try,
    without_needless_nf4,
)
from gpuplan.planner.search.machines.offers import survey
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

CATALOGUE = load_catalogue()
EXAMPLE = Path(__file__).parents[3] / "examples" / "lora.py"


def ways(profile: Profile, device: str = "L4", **asked: Any) -> list[Way]:
    precisions = asked.pop("tried", ("tf32", "bf16-amp"))
    accelerator = CATALOGUE.accelerators[device]
    return ways_to_try(accelerator, "torch-eager", precisions, profile, Choices(**asked))


@pytest.fixture
def frozen(make_decoder: Callable[..., Profile]) -> Profile:
    """Return a profile of a mostly frozen model that says it was traced with a 16-bit base."""
    profile = make_decoder(trainable=0.01)
    base = profile.step("amp16").model_copy(update={"numerics": "frozen16"})
    return profile.model_copy(update={"steps": (*profile.steps, base)})


def test_a_free_search_tries_the_base_in_16_and_in_4_bits(frozen: Profile) -> None:
    assert ways(frozen) == [
        ("tf32", None), ("bf16-amp", None), ("bf16-amp", "bf16"), ("bf16-amp", "nf4"),
    ]  # fmt: skip
    assert ways(frozen, "T4", tried=("fp16-amp",)) == [("fp16-amp", None), ("fp16-amp", "nf4")]
    assert ("bf16-amp", "nf4") not in ways(frozen, "MI300X")


def test_a_precision_to_compute_in_leaves_the_base_free(frozen: Profile) -> None:
    """`--precision bf16-amp` once kept the base in fp32, so that nothing fitted a 24 GB card."""
    found = ways(frozen, precisions=("bf16-amp",), tried=("bf16-amp",))
    assert found == [("bf16-amp", None), ("bf16-amp", "bf16"), ("bf16-amp", "nf4")]
    assert ways(frozen, precisions=("fp32",), tried=("fp32",)) == [("fp32", None)]


def test_what_was_fixed_stays(frozen: Profile, make_decoder: Callable[..., Profile]) -> None:
    plain = [("tf32", None), ("bf16-amp", None)]
    assert ways(make_decoder()) == plain
    assert ways(make_decoder(trainable=0.01)) == plain  # No such step was traced.
    assert ways(frozen, frozen_precisions=("nf4",)) == [("bf16-amp", "nf4")]
    assert ways(frozen, frozen_precisions=("fp32",)) == plain
    amp = ("bf16-amp",)
    both = ways(frozen, precisions=amp, frozen_precisions=("bf16",), tried=amp)
    assert both == [("bf16-amp", "bf16")]


def test_a_model_that_is_trained_whole_has_no_base_to_keep(
    frozen: Profile, make_decoder: Callable[..., Profile]
) -> None:
    asked = Choices(frozen_precisions=("nf4",))
    refuse_nothing_frozen(asked, frozen)
    refuse_nothing_frozen(Choices(frozen_precisions=("fp32",)), make_decoder())
    with pytest.raises(UsageError, match="parameters of .* are trained") as raised:
        refuse_nothing_frozen(asked, make_decoder())
    assert "--lora r=16" in (raised.value.fix or "")


def test_other_words_are_refused() -> None:
    with pytest.raises(UsageError, match="frozen_precisions='int8' is not one of"):
        Choices(frozen_precisions=("int8",))  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="is one word"):
        Choices(frozen_precisions="nf4")  # pyright: ignore[reportArgumentType]


def some_candidates() -> tuple[Candidate, Candidate]:
    """Return a candidate with a 16-bit base and one with a 4-bit base on one machine."""
    machine = Machine(instances=("g2-standard-4",), max_nodes=1)
    choice = survey(CATALOGUE, machine, Question().money).choices[0]
    base = Setup(layout=Layout(), precision="bf16-amp", micro_batch=1, frozen_precision="bf16")
    bf16 = Candidate(
        choice=choice,
        one_node=choice.one_node,
        base=base,
        layout=Layout(),
        micro_batch=1,
        grad_accum=1,
        recompute="none",
        step_s=1.0,
        over_likely=1.0,
        global_batch=1,
        steps=None,
        checkpoint_bytes=1e9,
        variants_that_fit=3,
    )
    return bf16, replace(bf16, base=replace(base, frozen_precision="nf4"))


@pytest.mark.parametrize(("step_s", "is_kept"), [(1.2, False), (0.95, False), (0.8, True)])
def test_4_bits_are_proposed_where_they_are_faster_by_a_tenth(step_s: float, is_kept: bool) -> None:
    bf16, nf4 = some_candidates()
    found = without_needless_nf4([bf16, replace(nf4, step_s=step_s)])
    assert [one.base.frozen_precision for one in found] == ["bf16", *(["nf4"] if is_kept else [])]
    assert sum(one.variants_that_fit for one in found) == 6


def test_4_bits_are_proposed_where_nothing_else_is_safe() -> None:
    bf16, nf4 = some_candidates()
    assert without_needless_nf4([nf4]) == [nf4]
    risky = replace(bf16, is_risky=True)
    assert without_needless_nf4([risky, nf4]) == [risky, nf4]


@pytest.fixture(scope="module")
def lora() -> Profile:
    params = {"seq_len": 2048}
    return api.profile(EXAMPLE, params=params, numerics=("amp16", "fp32", "pure16"))


def found_on(profile: Profile, *names: str, **choices: Any) -> SearchOutcome:
    question = Question(
        work=Work(tokens=50e6),
        machine=Machine(accelerators=names, max_nodes=1),
        choices=Choices(**choices),
    )
    return search(question, profile, CATALOGUE)


@pytest.mark.slow
def test_devices_of_24_gb_train_adapters_of_8b_in_4_bits_and_of_48_gb_in_16(lora: Profile) -> None:
    outcome = found_on(lora, "L4:1", "A10G:1", "L40S:1")
    plans = {plan.offer.accelerator: plan for plan in outcome.plans}
    kept = {name: plan.frozen_precision for name, plan in plans.items()}
    assert kept == {"L4": "nf4", "A10G": "nf4", "L40S": "bf16"}
    assert plans["L40S"].runnable and plans["L4"].runnable is False
    assert "bitsandbytes" in (plans["L4"].why_not_runnable or "")
    assert plans["L4"].string.endswith("bf16-amp frozen=nf4")
    assert any("--frozen-precision" in note for note in outcome.notes)
    usd = {name: plan.whole_job and plan.whole_job.usd for name, plan in plans.items()}
    assert Decimal(2) < (usd["L40S"] or 0) < Decimal(15)


@pytest.mark.slow
def test_where_gpuplan_runs_no_safe_plan_the_nearest_that_it_runs_is_named(lora: Profile) -> None:
    """In 16 bits the base of 8B leaves a device of 24 GB a little short."""
    outcome = found_on(lora, "L4:1")
    assert outcome.recommended is not None and outcome.near_miss is not None
    plans = {plan.id: plan for plan in outcome.plans}
    assert plans[outcome.recommended.id].runnable is False
    assert "gpuplan cannot run it" in outcome.recommended.reason
    nearest = plans[outcome.near_miss.id]
    assert nearest.runnable and nearest.frozen_precision == "bf16"
    options = (outcome.near_miss.options or "").split()
    assert options[:2] == ["--runnable", "--max-oom-risk"]
    question = Question(
        work=Work(tokens=50e6),
        machine=Machine(accelerators=("L4:1",), max_nodes=1),
        money=Money(max_oom=float(options[2])),
        runnable=True,
    )
    given = search(question, lora, CATALOGUE)
    assert given.recommended is not None and given.near_miss is None


@pytest.mark.slow
def test_what_is_asked_for_is_tried_alone(lora: Profile) -> None:
    plain = found_on(lora, "L4:1", "A10G:1", frozen_precisions=("fp32",), offload=())
    assert not plain.plans and plain.rejected.out_of_memory
    outcome = found_on(lora, "L4:8", frozen_precisions=("nf4",))
    assert {plan.frozen_precision for plan in outcome.plans} == {"nf4"}
    assert not any("--frozen-precision" in note for note in outcome.notes)


@pytest.mark.slow
def test_how_the_base_is_kept_is_part_of_a_plan_s_name(lora: Profile) -> None:
    plan = found_on(lora, "L40S:1").plans[0]
    fields = dict(plan)
    assert plan_id(fields | {"frozen_precision": "nf4"}) != plan_id(fields) == plan.id
    without = {name: value for name, value in fields.items() if name != "frozen_precision"}
    assert plan_id(fields | {"frozen_precision": None}) == plan_id(without)
