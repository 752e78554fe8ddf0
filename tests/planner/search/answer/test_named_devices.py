"""Accelerators that are asked for and have no plan: the answer says which, and why."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile


def searched(toy: Profile, question: Question) -> SearchOutcome:
    choices = replace(question.choices, recomputes=("none",))  # The toy has no more traces.
    return search(replace(question, choices=choices), toy, load_catalogue())


def without(outcome: SearchOutcome) -> str:
    return " ".join(note for note in outcome.notes if note.startswith("no plan is on"))


def test_a_device_that_is_older_than_all_builds_of_torch_is_named(toy: Profile) -> None:
    alone = searched(toy, Question(machine=Machine(accelerators=("K80",))))
    assert alone.plans == ()
    assert without(alone) == (
        "no plan is on K80, whose compute capability 3.7 is older than all that builds of torch"
        " drive (5.0 and newer)"
    )
    beside = searched(toy, Question(machine=Machine(accelerators=("K80", "T4"), nodes=(1,))))
    assert {plan.offer.accelerator for plan in beside.plans} == {"T4"}
    assert without(beside) == without(alone)


def test_a_device_without_units_for_the_precision_is_named(toy: Profile) -> None:
    question = Question(
        machine=Machine(accelerators=("V100-16GB-SXM2", "A10G"), nodes=(1,)),
        choices=Choices(precisions=("bf16",)),
    )
    said = without(searched(toy, question))
    assert "V100-16GB-SXM2, which has no units for bf16 (give --precision one of fp32" in said
    assert "A10G" not in said


def test_a_device_whose_plans_all_break_a_limit_is_named(toy: Profile) -> None:
    work, devices = Work(samples=1e9), ("A10G", "H100-80GB-SXM")
    machine = Machine(accelerators=devices, nodes=(1,), providers=("aws",))
    free = searched(toy, Question(work=work, machine=machine))
    cost: dict[str, Decimal] = {}
    for plan in free.plans:
        assert plan.job is not None and plan.job.usd is not None
        name, usd = plan.offer.accelerator, Decimal(plan.job.usd)
        cost[name] = min(usd, cost.get(name, usd))
    assert without(free) == ""
    low, high = sorted(cost, key=cost.__getitem__)
    between = (cost[low] + cost[high]) / 2
    asked = Question(work=work, machine=machine, money=Money(budget_usd=between))
    assert (
        without(searched(toy, asked)) == f"no plan is on {high}, where all that fits breaks a limit"
    )


@pytest.mark.parametrize("machine", [Machine(), Machine(providers=("aws",))])
def test_nothing_is_said_where_no_device_is_named(toy: Profile, machine: Machine) -> None:
    assert without(searched(toy, Question(machine=machine, top=3))) == ""
