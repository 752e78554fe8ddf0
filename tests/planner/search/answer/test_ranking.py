"""The order of plans: of equally many accelerators the cheaper training is the smaller plan."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from answers import make_plan

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import CPU_PREFIX
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import (
    HIDDEN_ABOVE,
    Choices,
    Machine,
    Money,
    Question,
    Work,
)
from gpuplan.planner.search.answer.ranking import headlines, rank
from gpuplan.planner.search.answer.recommended import cost_of
from gpuplan.planner.search.order import sort_key
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile


def priced(plan_id: str, usd_per_hour: float | None, usd_per_million: float | None) -> Plan:
    changes = {"usd_per_hour": usd_per_hour, "usd_per_million_samples": usd_per_million}
    return make_plan().model_copy(update={"id": plan_id, **changes})


def test_a_slow_network_is_no_bargain_at_fewer_dollars_an_hour() -> None:
    slow, fast = priced("slow", 220, 900), priced("fast", 350, 1)
    assert headlines((slow, fast))["smallest"] == "fast"
    alike = {"size": 64, "peak_bytes": 1e10, "samples_per_s": 1.0}
    for order in ("size", "memory"):
        key_of_slow = sort_key(order, cost=9e-4, price=220, seconds=1.5e-2, **alike)
        key_of_fast = sort_key(order, cost=1e-6, price=350, seconds=1e-5, **alike)
        assert key_of_fast < key_of_slow


def test_plans_are_ordered_by_what_was_asked_for(
    make_rigid_decoder: Callable[..., Profile],
) -> None:
    """By memory they were ordered by accelerators, by throughput by hours with their start."""

    profile = make_rigid_decoder()

    def ordered(sort: Any) -> list[Plan]:
        question = Question(
            machine=Machine(providers=("aws", "gcp"), max_nodes=2),
            work=Work(samples=1e6, global_batch=256),
            money=Money(sort=sort),
        )
        found = search(question, profile, load_catalogue()).plans
        return [plan for plan in found if not plan.stands_apart and not plan.offer.is_cpu]

    peaks = [plan.peak_memory_bytes.value for plan in ordered("memory")]
    assert len(set(peaks)) > 3 and peaks == sorted(peaks)
    # The plan of each device is one that takes little there, not its cheapest.
    by_cost = {one.offer.accelerator: one.peak_memory_bytes.value for one in ordered("cost")}
    by_memory = {one.offer.accelerator: one.peak_memory_bytes.value for one in ordered("memory")}
    assert all(by_memory[name] <= 1.02 * by_cost[name] for name in by_memory)
    assert sum(by_memory.values()) < 0.9 * sum(by_cost.values())
    rates = [plan.samples_per_s for plan in ordered("throughput")]
    assert len(set(rates)) > 3 and rates == sorted(rates, reverse=True)


def test_an_unknown_price_is_not_the_smallest_of_equals() -> None:
    unknown, known = priced("unknown", None, None), priced("known", 350, 1)
    assert headlines((unknown, known))["smallest"] == "known"


def test_host_processors_that_are_asked_for_are_shown_whatever_they_cost(
    make_decoder: Callable[..., Profile],
) -> None:
    question = Question(
        machine=Machine(providers=("aws", "gcp"), max_nodes=1),
        choices=Choices(recomputes=("none",)),
        work=Work(tokens=1e11, global_batch=64),
        top=1,
        vs_cpu=True,
    )
    outcome = search(question, make_decoder(layers=12, hidden=1024), load_catalogue())
    plans = {plan.offer.accelerator.startswith(CPU_PREFIX): plan for plan in outcome.plans}
    assert set(plans) == {True, False}
    cpu, device = cost_of(plans[True]), cost_of(outcome.plans[0])
    assert cpu is not None
    assert device is not None
    assert cpu > HIDDEN_ABOVE * device, "a device as dear would not be shown"


def test_an_accelerator_that_is_named_has_a_row_whatever_it_costs(
    make_decoder: Callable[..., Profile],
) -> None:
    """An answer about "V100,T4" had no word on the T4."""
    question = Question(
        machine=Machine(accelerators=("V100", "T4", "H100"), max_nodes=1),
        choices=Choices(recomputes=("none",)),
        work=Work(tokens=1e10, global_batch=64),
        top=10,
    )
    plans = search(question, make_decoder(layers=12, hidden=1024), load_catalogue()).plans
    costs = {plan.offer.accelerator: cost_of(plan) or 0.0 for plan in plans}
    assert {name.split("-")[0] for name in costs} == {"V100", "T4", "H100"}
    assert max(costs.values()) > HIDDEN_ABOVE * min(costs.values())


@pytest.mark.parametrize(
    ("most_nodes", "deadline_days", "is_left_out"),
    [(64, None, True), (64, 4000, False), (1, None, False)],
)
def test_what_takes_months_is_left_out_where_others_end_sooner(
    make_decoder: Callable[..., Profile],
    most_nodes: int,
    deadline_days: float | None,
    is_left_out: bool,
) -> None:
    deadline_s = None if deadline_days is None else deadline_days * 86400
    question = Question(
        machine=Machine(providers=("aws",), accelerators=("A100-80GB-SXM",), max_nodes=most_nodes),
        choices=Choices(recomputes=("none",)),
        work=Work(tokens=1e13, global_batch=2048),
        money=Money(deadline_s=deadline_s),
        top=10,
    )
    outcome = search(question, make_decoder(layers=12, hidden=1024), load_catalogue())
    days = [plan.whole_job.hours / 24 for plan in outcome.plans if plan.whole_job is not None]
    assert days
    assert (outcome.hidden.above_time > 0) == is_left_out
    assert (max(days) <= 60) == is_left_out


def test_where_only_host_processors_are_left_each_of_them_is_a_plan(
    make_decoder: Callable[..., Profile],
) -> None:
    """A type of one's own seller must not be hidden by another seller's that is cheaper."""
    question = Question(
        machine=Machine(accelerators=("K80",), max_nodes=1),  # No torch trains on it.
        choices=Choices(recomputes=("none",)),
        work=Work(tokens=1e9, global_batch=64),
        top=10,
        vs_cpu=True,
    )
    outcome = search(question, make_decoder(layers=2), load_catalogue())
    assert all(plan.offer.accelerator.startswith(CPU_PREFIX) for plan in outcome.plans)
    assert len({plan.offer.provider for plan in outcome.plans}) > 1


def test_each_seller_has_a_row_where_sellers_are_compared(toy: Profile) -> None:
    """Whoever asks for one row a seller misses those that cost five times the cheapest."""
    question = Question(
        work=Work(samples=1e8, global_batch=256),
        machine=Machine(max_nodes=1),
        choices=Choices(recomputes=("none",), precisions=("fp16-amp",)),
        top=30,
    )

    def sellers(asked: Question) -> set[str]:
        plans = search(asked, toy, load_catalogue()).plans
        return {one.offer.provider for one in plans if not one.stands_apart}

    asked = sellers(replace(question, by="provider"))
    assert {"aws", "azure", "gcp", "oci"} <= asked
    assert not {"azure", "oci"} & sellers(question), "the case is no case"


def rankable(order: int, plan: Plan) -> Any:
    """Return what `rank` asks of a candidate that the search holds for safe."""
    return SimpleNamespace(
        order=lambda _sort: (False, order),
        step_s=plan.step_time_s.value,
        one_node=SimpleNamespace(accelerator=SimpleNamespace(is_cpu=False, name="A100")),
        choice=SimpleNamespace(offer=plan.offer),
        micro_batch=plan.micro_batch,
        nodes=plan.nodes,
        usd=float(order),
        seconds=3600.0,
        steps=None,
        limited_by=None,
        is_risky=False,
        is_reserved=False,
        plan=plan,
    )


@pytest.mark.parametrize(("chances", "best"), [([0.04, 0.0], 1), ([0.0, 0.0], 0), ([0.04, 0.3], 0)])
def test_what_the_exact_check_finds_risky_gives_way_to_a_sure_plan(
    chances: list[float], best: int
) -> None:
    """The quick check passes a plan that the exact one gives a chance of 4 % to run out."""
    plans = [make_plan(p_oom=chance, grad_accum=1 + i) for i, chance in enumerate(chances)]
    candidates = [rankable(1 + i, plan) for i, plan in enumerate(plans)]
    ranked = rank(
        candidates,
        Question(),
        lambda one: cast(Any, one).plan,
        runs=lambda _: True,
        stands_apart=lambda _: False,
        needs_build=lambda _: False,
    )
    assert [plan.id for plan in ranked.plans][:1] == [plans[best].id]
