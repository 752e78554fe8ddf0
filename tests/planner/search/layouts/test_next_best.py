"""What replaces a candidate that is short of memory when its allocator is replayed."""

from dataclasses import replace
from itertools import pairwise

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.answer import whole_plans
from gpuplan.planner.search.candidate import Candidate
from gpuplan.planner.search.layouts.next_best import NextBest
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

RISKS = (0.02, 0.2, 0.35, 0.5)
NEARLY = 0.99
"""Of variants that differ by less the one with the smaller micro-batch is planned."""


def question(batch: int, max_oom: float = 0.02) -> Question:
    return Question(
        machine=Machine(accelerators=("V100", "T4", "A10G"), max_nodes=2),
        work=Work(samples=1e8, global_batch=batch),
        money=Money(max_oom=max_oom),
        by="instance",
        top=None,
    )


def rates(outcome: SearchOutcome, max_oom: float) -> dict[tuple[str, int], float]:
    """Return samples per second of what is rented, as far as it is safe enough."""
    kept = [plan for plan in outcome.plans if (plan.p_oom or 0.0) <= max_oom]
    return {(plan.offer.instance_type, plan.nodes): plan.samples_per_s for plan in kept}


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(2048, marks=[pytest.mark.slow, pytest.mark.repeats]),
        3072,
        pytest.param(6144, marks=[pytest.mark.slow, pytest.mark.repeats]),
    ],
)
def test_more_risk_makes_no_plan_slower(small_decoder: Profile, batch: int) -> None:
    """`--max-oom-risk 0.5` halved the micro-batch and kept the recompute policy of the larger."""
    catalogue = load_catalogue()
    found = [search(question(batch, risk), small_decoder, catalogue) for risk in RISKS]
    for (small, before), (large, after) in pairwise(zip(RISKS, found, strict=True)):
        known, now = rates(before, small), rates(after, large)
        slower = {what: (known[what], now[what]) for what in known.keys() & now.keys()}
        slower = {what: both for what, both in slower.items() if both[1] < NEARLY * both[0]}
        assert not slower, f"risk {small} to {large}"
        assert best(after, large) <= best(before, small) / NEARLY


def best(outcome: SearchOutcome, max_oom: float) -> float:
    """Return the dollars of the cheapest plan that is safe enough."""

    def usd(plan: Plan) -> float:
        job = plan.whole_job
        return float("inf") if job is None or job.usd is None else float(job.usd)

    return min(usd(plan) for plan in outcome.plans if (plan.p_oom or 0.0) <= max_oom)


def test_it_is_the_fastest_that_the_exact_check_passes(
    small_decoder: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the check rules out, no variant that it passes is faster than what is planned."""
    catalogue = load_catalogue()
    asked = replace(question(2048), machine=Machine(instances=("p3.2xlarge",), nodes=(1,)))
    asked = replace(asked, choices=Choices(precisions=("fp16-amp",)))
    first = search(asked, small_decoder, catalogue).plans[0]
    found: list[list[Candidate]] = []
    of = NextBest.of

    def told(self: NextBest, one: Candidate) -> list[Candidate]:
        found.append(of(self, one))
        return found[-1]

    monkeypatch.setattr(NextBest, "of", told)
    too_large = first.micro_batch
    monkeypatch.setattr(
        whole_plans, "_is_roomy", lambda _cache, one, *_: one.micro_batch < too_large
    )
    plan = search(asked, small_decoder, catalogue).plans[0]
    passed = [one for one in found[0] if one.micro_batch < too_large]
    assert {one.recompute for one in passed} == {"none", "selective", "full"}
    fastest = min(passed, key=lambda one: one.step_s / one.global_batch)
    assert plan.micro_batch < too_large and plan.global_batch == 2048
    assert plan.step_time_s.value == pytest.approx(fastest.step_s)


def test_more_layers_are_recomputed_where_some_are_too_few(
    small_decoder: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(question(2048), machine=Machine(instances=("p3.2xlarge",), nodes=(1,)))

    def roomy(_cache: object, one: Candidate, *_: object) -> bool:
        return one.recompute == "full" and one.recompute_share >= 0.75

    monkeypatch.setattr(whole_plans, "_is_roomy", roomy)
    asked = replace(asked, choices=Choices(recomputes=("none", "full"), precisions=("fp16-amp",)))
    plan = search(asked, small_decoder, load_catalogue()).plans[0]
    assert plan.recompute == "full" and plan.recompute_layers in (None, 3)


def test_layers_that_were_asked_for_stay_where_memory_is_short(
    small_decoder: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_plans, "_is_roomy", lambda *_: False)
    choices = Choices(recomputes=("full",), recompute_layers=2, precisions=("fp16-amp",))
    asked = Question(
        machine=Machine(instances=("p3.2xlarge",), nodes=(1,)),
        work=Work(samples=1e6, global_batch=64),
        choices=choices,
    )
    plan = search(asked, small_decoder, load_catalogue()).plans[0]
    assert plan.recompute_layers == 2 and plan.global_batch == 64
