"""Which plans an answer shows, and the question that it repeats."""

from datetime import date

from answers import make_offer, make_plan, make_run

from gpuplan.planner.plan.answer.asked import AskedBatch
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Machine, Money, Question, Work
from gpuplan.planner.search.answer.answer import answer_of, asked_question, price_dates
from gpuplan.profiles.profile import Profile


def plans(count: int) -> list[Plan]:
    """Return plans that get dearer and faster."""
    found = []
    for place in range(1, count + 1):
        usd, hours = 1000.0 * (1 + place / 100), 100.0 - place
        run = make_run(
            hours=hours, hours_low=hours, hours_high=hours, usd=usd, usd_low=usd, usd_high=usd
        )
        offer = make_offer(provider="verda", usd_per_hour=usd / hours)
        found.append(make_plan(place, run=run, offer=offer, runnable=True))
    return found


def test_the_named_plans_stay_and_what_needs_a_port_uses_up_no_place() -> None:
    ported = make_plan(needs_port=True, run=make_run(), offer=make_offer(usd_per_hour=1.0))
    ranked = [*plans(30), ported]
    answer = answer_of(ranked, Question(top=3), is_batch_free=False)
    assert len(answer.plans) == 4
    assert [plan.position for plan in answer.plans] == [1, 2, 3, 4]
    assert answer.plans[-1].needs_port
    shown = {plan.id: plan.position for plan in answer.plans}
    assert set(answer.headlines.values()) <= set(shown)
    assert answer.recommended is not None
    assert shown[answer.recommended.id] == answer.recommended.position


def test_another_seller_s_plan_has_one_of_the_large_clouds_beside_it() -> None:
    large = plans(31)[-1]
    large = large.model_copy(update={"offer": make_offer(provider="azure")})
    ranked = [*plans(30), large]
    answer = answer_of(ranked, Question(top=3), is_batch_free=False)
    assert answer.on_large_clouds is not None
    assert answer.on_large_clouds.id in {plan.id for plan in answer.plans}
    named = Question(top=3, machine=Machine(providers=("verda", "azure")))
    assert answer_of(ranked, named, is_batch_free=False).on_large_clouds is None


def test_the_dates_are_those_of_the_prices_that_are_used() -> None:
    old = make_offer(price_date=date(2024, 1, 1), price_date_precision="year")
    new = make_offer(price_date=date(2026, 7, 3), price_date_precision="day")
    undated = make_offer(price_date=None)
    found = price_dates([make_plan(offer=offer) for offer in (old, new, undated)])
    assert found is not None
    assert (found.oldest, found.newest, found.by_year) == (date(2024, 1, 1), date(2026, 7, 3), True)
    assert price_dates([make_plan(offer=undated)]) is None


def test_the_question_is_repeated_with_its_steps(toy: Profile) -> None:
    question = Question(
        work=Work(tokens=1e9), machine=Machine(providers=("aws",)), money=Money(deadline_s=3600.0)
    )
    batch = AskedBatch(samples=64, source="option")
    asked = asked_question(question, toy, batch)
    per_sample = toy.tokens_per_sample
    assert per_sample is not None
    assert (asked.work.kind, asked.work.amount, asked.work.tokens) == ("tokens", 1e9, 1e9)
    assert asked.work.steps == -(-1e9 // (64 * per_sample))
    assert (asked.limits.deadline_s, asked.machine.providers) == (3600.0, ("aws",))


def test_a_critical_batch_makes_the_work_grow(toy: Profile) -> None:
    """Steps are (work ÷ critical) · (1 + critical ÷ batch): McCandlish et al. 2018."""
    batch = AskedBatch(samples=64, source="option")
    plain = asked_question(Question(work=Work(samples=64_000)), toy, batch)
    grown = asked_question(Question(work=Work(samples=64_000, critical_batch=32)), toy, batch)
    assert plain.work.steps == 1000
    assert grown.work.steps == 64_000 / 32 * (1 + 32 / 64)
