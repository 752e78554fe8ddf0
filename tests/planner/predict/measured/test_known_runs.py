"""A plan that was run before has the step time of that run, and all that follows from it."""

from collections.abc import Callable, Iterable

import pytest
from answers import make_plan

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.predict.measured.known_runs import BETWEEN_MACHINES, KnownStep, run_key
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

QUESTION = Question(
    work=Work(samples=1e6),
    machine=Machine(accelerators=("A100",), providers=("aws",), max_nodes=1),
    choices=Choices(micro_batches=(1,), recomputes=("none",)),
)


def test_the_median_of_runs_is_as_wide_as_machines_or_runs_differ() -> None:
    one = KnownStep(times_s=(2.0,), run="a").estimated
    assert (one.value, one.low, one.high) == (2.0, 2 * (1 - BETWEEN_MACHINES), 2.16)
    assert one.basis == "measured"
    three = KnownStep(times_s=(2.0, 3.0, 2.1), run="c").estimated
    assert (three.value, three.high) == (2.1, 3.0)


def test_only_the_same_machines_batch_and_optimizer_are_one_plan() -> None:
    plan = make_plan()
    assert run_key(plan) == run_key(plan.model_copy(update={"id": "another", "position": 7}))
    for change in ({"string": "dp8 mb8"}, {"nodes": 2}, {"optimizer": "sgd"}):
        assert run_key(plan) != run_key(plan.model_copy(update=change))


def test_an_estimate_rests_on_the_run_of_a_plan_and_the_rest_stays(
    make_decoder: Callable[..., Profile],
) -> None:
    profile, catalogue = make_decoder(), load_catalogue()
    before = search(QUESTION, profile, catalogue)
    plan = before.plans[0]
    assert plan.run is not None and plan.run.usd is not None and plan.mfu is not None
    slower_s = plan.step_time_s.value * 3
    known = {run_key(plan): KnownStep(times_s=(slower_s,), run="net-1")}
    after = search(QUESTION, profile, catalogue, known)
    found = next(one for one in after.plans if run_key(one) == run_key(plan))
    assert (found.step_time_s.basis, found.step_time_s.value) == ("measured", slower_s)
    assert found.samples_per_s == pytest.approx(plan.samples_per_s / 3)
    assert found.mfu == pytest.approx(plan.mfu / 3)
    assert found.run is not None
    assert found.run.hours == pytest.approx(plan.run.hours * 3)
    assert found.run.usd == pytest.approx(plan.run.usd * 3)
    parts_s = [seconds for _, seconds in found.breakdown_s if seconds is not None]
    assert sum(parts_s) == pytest.approx(slower_s)
    assert any("net-1" in note for note in found.notes)
    assert found.id != plan.id

    def rest(plans: Iterable[Plan]) -> set[str]:
        return {one.id for one in plans if run_key(one) != run_key(plan)}

    assert rest(after.plans) == rest(before.plans)
