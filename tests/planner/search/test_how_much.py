"""A budget without an amount of work: how much each plan trains within the limits."""

import re
from decimal import Decimal

import pytest
from answers import make_plan, make_run

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.goodput.expected_run import mean_training_s
from gpuplan.planner.plan.parts import WholeJob
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.answer.recommended import recommended, sensible
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

HOUR = 3600.0
SMALL = Choices(recomputes=("none",), precisions=("bf16-amp",))
MACHINES = Machine(providers=("aws", "gcp"), accelerators=("A100", "H100", "L4"), max_nodes=8)


def asked(profile: Profile, *, tokens: float | None = None, **money: object) -> SearchOutcome:
    question = Question(
        work=Work(global_batch=64, tokens=tokens),
        machine=MACHINES,
        choices=SMALL,
        money=Money(**money),  # pyright: ignore[reportArgumentType]
    )
    return search(question, profile, load_catalogue())


def trained(plan: Plan) -> float:
    assert plan.run is not None and plan.run.trained_samples is not None
    return plan.run.trained_samples


def test_only_a_budget_without_work_asks_for_the_work() -> None:
    assert Question(money=Money(budget_usd=Decimal(5))).asks_for_work
    assert not Question().asks_for_work
    assert not Question(money=Money(deadline_s=5.0)).asks_for_work
    assert not Question(money=Money(budget_usd=Decimal(5)), work=Work(steps=1)).asks_for_work


def by_rule(profile: Profile, usd: int, work: Work) -> SearchOutcome:
    machine = Machine(providers=("aws",), accelerators=("A10G:1",), max_nodes=1)
    money = Money(budget_usd=Decimal(usd))
    question = Question(work=work, machine=machine, choices=SMALL, money=money)
    return search(question, profile, load_catalogue())


def test_a_budget_for_a_fine_tune_takes_the_batch_of_one(toy: Profile) -> None:
    large = toy.model_copy(update={"parameters": 10**12, "trainable_parameters": 10**12})
    tuned = by_rule(large, 3, Work(from_weights=True))
    assert "fine-tune" in (tuned.question.global_batch.rule or "")
    assert tuned.plans[0].run is not None
    assert (tuned.plans[0].run.trained_tokens or 0) < large.parameters
    first = by_rule(large, 3, Work())
    assert "at 1e+03B parameters" in (first.question.global_batch.rule or "")


def test_a_small_budget_leaves_enough_steps(toy: Profile) -> None:
    large = toy.model_copy(update={"parameters": 10**12, "trainable_parameters": 10**12})
    least = by_rule(large, 1, Work())
    assert "less to leave 500 steps" in (least.question.global_batch.rule or "")
    enough = by_rule(large, 1000, Work()).question.global_batch
    assert "less to" not in (enough.rule or "")
    assert (least.question.global_batch.samples or 0) < (enough.samples or 0)


@pytest.mark.parametrize("deadline_s", [None, 3 * HOUR, 48 * HOUR])
def test_every_plan_keeps_to_both_limits_and_one_more_step_would_not(
    toy: Profile, deadline_s: float | None
) -> None:
    found = asked(toy, budget_usd=Decimal(100), deadline_s=deadline_s)
    assert found.plans
    for plan in found.plans:
        run, job = plan.run, plan.whole_job
        assert run is not None and job is not None and job.total_usd is not None
        assert job.total_usd <= 100
        assert deadline_s is None or job.hours * HOUR <= deadline_s
        assert run.trained_samples == run.steps * plan.global_batch
        assert run.trained_tokens == trained(plan) * (toy.tokens_per_sample or 0)
        if run.limited_by == "deadline":
            assert deadline_s is not None
            # With its share of evaluations, checkpoints and slow steps, which is below a tenth.
            assert job.hours * HOUR + 1.1 * mean_training_s(plan.step_time_s) > deadline_s
        else:
            # A billed increment is an hour at most.
            assert float(job.total_usd) + (plan.usd_per_hour or 0) * 1.01 + 0.1 > 100


def test_plans_come_by_how_much_they_train(toy: Profile) -> None:
    found = asked(toy, budget_usd=Decimal(100), deadline_s=12 * HOUR)
    amounts = [trained(plan) for plan in found.plans if (plan.p_oom or 0) <= 0.02]
    assert amounts == sorted(amounts, reverse=True)
    assert found.headlines == {}
    assert found.recommended is not None
    assert "trains" in found.recommended.reason


@pytest.mark.parametrize("deadline_s", [None, 3 * HOUR])
def test_what_is_trained_nine_times_in_ten_is_less_than_what_is_likely(
    toy: Profile, deadline_s: float | None
) -> None:
    found = asked(toy, budget_usd=Decimal(100), deadline_s=deadline_s)
    assert found.recommended is not None
    (plan,) = (one for one in found.plans if one.id == found.recommended.id)
    assert plan.run is not None and plan.whole_job is not None
    if plan.run.limited_by == "deadline":
        limit, share = "the time", plan.whole_job.hours / plan.whole_job.hours_high
    else:
        _, likely, high = plan.usd_ends
        assert likely is not None and high is not None
        limit, share = "the budget", likely / high
    words = found.recommended.reason
    said = re.search(rf"9 times in 10 {limit} is enough for ([\d.]+)([KMB]) tokens", words, re.I)
    assert said is not None, words
    tokens = float(said[1]) * {"k": 1e3, "m": 1e6, "b": 1e9}[said[2].lower()]
    likely = trained(plan) * (toy.tokens_per_sample or 0)
    # A little less than in proportion, as the start takes what it takes.
    assert 0.8 * share * likely < tokens < 1.01 * share * likely < likely
    least = asked(toy, tokens=tokens, budget_usd=Decimal(100), deadline_s=deadline_s)
    kept = [one.run for one in least.plans if one.place == plan.place and one.nodes == plan.nodes]
    chances = {
        "the budget": [one.budget_probability for one in kept if one is not None],
        "the time": [one.deadline_probability for one in kept if one is not None],
    }
    assert any(chance is not None and chance >= 0.85 for chance in chances[limit])


def test_a_job_shorter_than_a_start_says_nothing_of_nine_times_in_ten() -> None:
    run = make_run(limited_by="budget", trained_samples=4e10)
    short = make_plan(1, run=run, runnable=True)
    assert short.whole_job is not None
    hours = {"hours": 0.1, "hours_low": 0.1, "hours_high": 0.1}
    job = short.whole_job.model_copy(update=hours)
    short = short.model_copy(update={"whole_job": job})
    found = recommended([short], Money(budget_usd=Decimal(100)))
    assert found is not None and "9 times in 10" not in found.reason


def test_more_money_or_time_never_trains_less(toy: Profile) -> None:
    def most(usd: int, hours: float) -> float:
        plans = asked(toy, budget_usd=Decimal(usd), deadline_s=hours * HOUR).plans
        return max(map(trained, plans))

    assert most(50, 5) <= most(100, 5)
    assert most(100, 5) <= most(100, 50)


def test_the_question_says_that_no_amount_was_given(toy: Profile) -> None:
    found = asked(toy, budget_usd=Decimal(100))
    assert found.question.work.kind is None
    assert found.question.limits.budget_usd == 100


def test_too_little_for_the_start_of_any_machine_is_counted(toy: Profile) -> None:
    found = asked(toy, budget_usd=Decimal("0.01"))
    assert found.plans == ()
    assert found.rejected.over_budget > 0


def limited(position: int, samples: float, hours: float, usd: float) -> Plan:
    """Return a plan that trains so many samples for a budget."""
    run = make_run(
        steps=int(samples), hours=hours, trained_samples=samples, limited_by="budget", usd=usd
    )
    job = WholeJob(
        hours=hours,
        hours_low=hours,
        hours_high=hours,
        usd=Decimal(usd),
        usd_low=Decimal(usd),
        usd_high=Decimal(usd),
    )
    plan = make_plan(position, run=run, runnable=True)
    return plan.model_copy(update={"whole_job": job})


def chosen(*plans: Plan) -> Plan:
    best = recommended(sensible(plans, Money()), Money())
    assert best is not None
    return next(plan for plan in plans if plan.id == best.id)


def test_less_work_in_much_less_time_may_be_recommended_and_says_so() -> None:
    slow, fast = limited(1, 1000.0, 1000.0, 100.0), limited(2, 800.0, 10.0, 100.0)
    best = recommended(sensible((slow, fast), Money()), Money())
    assert best is not None and best.id == fast.id
    assert best.reason.startswith(f"trains 80 % of the most ({slow.devices}, 42 days)")
    older = slow.model_copy(update={"needs_build": "torch 2.6"})
    best = recommended(sensible((older, fast), Money()), Money())
    assert best is not None
    assert "42 days, with another build of torch)" in best.reason


def test_two_weeks_for_fifty_dollars_do_not_come_before_two_hours() -> None:
    """What trains three times as much in two weeks bars nothing that ends today."""
    fortnight, today = limited(1, 42e6, 15 * 24.0, 50.0), limited(2, 14e6, 2.5, 50.0)
    assert chosen(fortnight, today) is today
    # Of thousands of dollars, the minutes in which somebody looks weigh nothing.
    assert chosen(limited(1, 42e6, 48.0, 5000.0), limited(2, 14e6, 2.5, 5000.0)).position == 1
