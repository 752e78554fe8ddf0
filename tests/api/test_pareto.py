"""Cost against time: which plans are compared, and what is asked for scaling over nodes."""

from decimal import Decimal
from typing import Any, cast

import pytest
from answers import make_estimate, make_job, make_offer, make_plan, make_run

from gpuplan.api import pareto
from gpuplan.api.models.inputs import Inputs
from gpuplan.catalog.errors import UsageError
from gpuplan.planner.plan.answer.answer_parts import Recommended
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Machine, Money, Question, Work

NO_INPUTS = cast(Inputs, None)


def plan(usd: float, hours: float, **changes: Any) -> Plan:
    run = make_run(hours=hours, usd=usd)
    job = make_job(run).model_copy(update={"hours": hours, "usd": Decimal(str(usd))})
    offer = make_offer(usd_per_hour=usd / hours)
    return make_plan(run=run, **{"offer": offer, **changes}).model_copy(update={"whole_job": job})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """Return the questions that are asked again; each is answered with one plan."""
    questions: list[Question] = []

    def estimate(_inputs: object, question: Question, **_: Any) -> Any:
        questions.append(question)
        nodes = question.machine.nodes[0] if question.machine.nodes else 1
        return make_estimate(plan(10.0 * nodes, 10.0 / nodes, nodes=nodes))

    monkeypatch.setattr(pareto, "estimate", estimate)
    return questions


def test_those_that_are_dominated_dear_or_cannot_run_are_left_out(asked: list[Question]) -> None:
    cheap, fast, slow = plan(9.0, 100.0), plan(20.0, 5.0), plan(30.0, 90.0)
    dear, ported = plan(500.0, 0.1), plan(1.0, 1.0, needs_port=True)
    answer = make_estimate(cheap, fast, slow, dear, ported)
    found = pareto.frontier(NO_INPUTS, Question(work=Work(tokens=1e9)), answer)
    ids = [one.id for one in found.plans]
    assert cheap.id in ids and slow.id in ids
    assert dear.id not in ids and ported.id not in ids
    hours = [one.whole_job.hours for one in found.best if one.whole_job is not None]
    assert hours == sorted(hours, reverse=True)
    assert slow.id not in [one.id for one in found.best]
    assert found.scaling == ()


def test_what_is_paid_beside_the_machines_counts(asked: list[Question]) -> None:
    """A spot machine at $8 whose controller costs $40 was drawn as the cheapest."""
    alone, beside = plan(20.0, 50.0), plan(8.0, 100.0)
    assert beside.whole_job is not None
    job = beside.whole_job.model_copy(update={"total_usd": Decimal(48)})
    beside = beside.model_copy(update={"whole_job": job})
    answer = make_estimate(alone, beside)
    found = pareto.frontier(NO_INPUTS, Question(work=Work(tokens=1e9)), answer)
    assert beside.id not in [one.id for one in found.best]
    money = Money(budget_usd=Decimal(30))
    limited = pareto.frontier(NO_INPUTS, Question(work=Work(tokens=1e9), money=money), answer)
    assert [one.id for one in limited.plans if one.id in (alone.id, beside.id)] == [alone.id]


def test_the_recommended_type_is_asked_about_on_every_number_of_nodes(
    asked: list[Question],
) -> None:
    best = plan(9.0, 100.0)
    picked = Recommended(id=best.id, position=1, reason="", gap_to_cheapest=0.0)
    question = Question(
        work=Work(tokens=1e9),
        machine=Machine(max_nodes=8, accelerators=("A100",)),
        money=Money(budget_usd=Decimal(30)),
        top=10,
    )
    found = pareto.frontier(NO_INPUTS, question, make_estimate(best, recommended=picked))
    assert [one.nodes for one in found.scaling] == [1, 2, 4, 8]
    scaled = asked[2:]
    assert [one.machine.nodes for one in scaled] == [(1,), (2,), (4,), (8,)]
    assert {one.machine.instances for one in scaled} == {("p4d.24xlarge",)}
    assert {one.money.budget_usd for one in scaled} == {None}
    assert all((one.whole_job and one.whole_job.usd or 0) <= 30 for one in found.plans)


def test_nodes_are_those_of_plans_that_run_and_surely_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none, the fastest is drawn all the same."""
    sure = plan(10.0, 10.0, nodes=1)
    risky = plan(9.0, 8.0, nodes=1, p_oom=0.13)
    alone = plan(9.0, 5.0, nodes=2, p_oom=0.13)
    by_nodes = {(1,): (sure, risky), (2,): (alone,), (): (sure,)}

    def estimate(_inputs: object, question: Question, **_: Any) -> Any:
        return make_estimate(*by_nodes[tuple(question.machine.nodes)])

    monkeypatch.setattr(pareto, "estimate", estimate)
    picked = Recommended(id=sure.id, position=1, reason="", gap_to_cheapest=0.0)
    question = Question(work=Work(tokens=1e9), machine=Machine(max_nodes=2))
    found = pareto.frontier(NO_INPUTS, question, make_estimate(sure, recommended=picked))
    assert [one.id for one in found.scaling] == [sure.id, alone.id]


@pytest.mark.parametrize("question", [Question(), Question(money=Money(budget_usd=Decimal(5)))])
def test_without_an_amount_of_work_there_is_nothing_to_draw(question: Question) -> None:
    with pytest.raises(UsageError, match="amount of work"):
        pareto.frontier(NO_INPUTS, question, make_estimate(make_plan()))
