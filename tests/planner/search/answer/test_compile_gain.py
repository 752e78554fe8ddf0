"""What compiling would gain on the recommended plan: what `--compile` then predicts of it."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.answer.compile_gain import LEAST_CUT
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.planner.software import compile_time
from gpuplan.profiles.profile import Profile

QUESTION = Question(
    work=Work(tokens=1e11, global_batch=512),
    machine=Machine(providers=("gcp",), accelerators=("L4",), max_nodes=1),
    choices=Choices(precisions=("bf16-amp",), recomputes=("none",)),
)


def found(profile: Profile, question: Question = QUESTION) -> SearchOutcome:
    return search(question, profile, load_catalogue())


def best_of(outcome: SearchOutcome) -> Plan:
    assert outcome.recommended is not None
    return next(plan for plan in outcome.plans if plan.id == outcome.recommended.id)


def test_the_gain_is_that_of_the_same_plan_with_the_option(small_decoder: Profile) -> None:
    outcome = found(small_decoder)
    plan = best_of(outcome)
    assert outcome.recommended is not None and not plan.compile
    gain = outcome.recommended.with_compile
    assert gain is not None and gain.times_as_fast > 1 / (1 - LEAST_CUT)
    assert not any(one.compile for one in outcome.plans)
    same = replace(
        QUESTION,
        machine=Machine(instances=(plan.offer.instance_type,), nodes=(plan.nodes,)),
        choices=replace(
            QUESTION.choices,
            compile=True,
            layouts=(plan.layout,),
            micro_batches=(plan.micro_batch,),
        ),
    )
    compiled = best_of(found(small_decoder, same))
    assert compiled.compile and plan.whole_job is not None and compiled.whole_job is not None
    assert compiled.whole_job.hours == pytest.approx(gain.hours)
    assert compiled.whole_job.total_usd == gain.usd
    assert gain.times_as_fast == pytest.approx(plan.whole_job.hours / compiled.whole_job.hours)


@pytest.mark.parametrize("choices", [{"compile": True}, {"compile": False}, {"stack": "megatron"}])
def test_who_says_how_the_step_is_run_is_not_told(
    small_decoder: Profile, choices: dict[str, object]
) -> None:
    asked = replace(QUESTION.choices, **choices)  # pyright: ignore[reportArgumentType]
    outcome = found(small_decoder, replace(QUESTION, choices=asked))
    assert outcome.recommended is not None and outcome.recommended.with_compile is None


def test_what_takes_long_to_compile_is_not_proposed(
    small_decoder: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_time, "LONG_S", 1.0)
    outcome = found(small_decoder)
    assert outcome.recommended is not None and outcome.recommended.with_compile is None


def test_a_file_that_compiles_and_a_small_gain_are_not_told(small_decoder: Profile) -> None:
    compiles = small_decoder.model_copy(update={"file_compiles": True})
    outcome = found(compiles)
    assert outcome.recommended is not None and outcome.recommended.with_compile is None
    assert best_of(outcome).compile
    # Of a job of minutes the start takes most, which compiling does not shorten.
    short = found(small_decoder, replace(QUESTION, work=Work(tokens=1e6, global_batch=512)))
    assert short.recommended is not None and short.recommended.with_compile is None


def test_where_limits_say_how_much_is_trained_the_gain_is_in_the_rate(
    small_decoder: Profile,
) -> None:
    money = Money(budget_usd=Decimal(50))
    outcome = found(small_decoder, replace(QUESTION, work=Work(global_batch=512), money=money))
    assert outcome.recommended is not None
    gain = outcome.recommended.with_compile
    assert gain is not None and gain.times_as_fast > 1 / (1 - LEAST_CUT) and gain.usd is None
