"""Credits pay a part that is shown and never taken off; a currency changes no number."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from answers import make_plan, make_run
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.terms.pricebook import Credit, Currency, Pricebook
from gpuplan.planner.cost.own_terms import with_own_terms
from gpuplan.planner.plan.payment import CommitmentUse
from gpuplan.planner.plan.plan import Plan, WholeJob

TODAY = date(2026, 11, 23)
MIDNIGHT = datetime(2026, 11, 23, tzinfo=UTC)


def plan_of(usd: str, hours: float) -> Plan:
    amount = Decimal(usd)
    job = WholeJob(
        hours=hours, hours_low=hours, hours_high=hours, usd=amount, usd_low=amount, usd_high=amount
    )
    return make_plan(run=make_run(), whole_job=job)


def credit(usd: str, days: int, provider: str | None = None) -> Credit:
    seller = provider or plan_of("1", 1).offer.provider
    return Credit(provider=seller, usd=Decimal(usd), expires=TODAY + timedelta(days=days))


def used(plan: Plan, *credits: Credit, at: datetime = MIDNIGHT) -> list[Decimal]:
    found = with_own_terms(plan, Pricebook(credits=credits), at=at)
    assert found.whole_job == plan.whole_job
    return [one.covers_usd for one in found.credits]


def test_a_credit_pays_no_more_than_it_is_nor_than_the_job() -> None:
    assert used(plan_of("100", 10), credit("30", 60)) == [30]
    assert used(plan_of("100", 10), credit("300", 60)) == [100]


def test_a_credit_pays_what_is_billed_beside_the_machines_too() -> None:
    plan = plan_of("100", 10)
    assert plan.whole_job is not None
    whole = plan.whole_job.model_copy(update={"total_usd": Decimal("104.50")})
    in_all = plan.model_copy(update={"whole_job": whole})
    assert used(in_all, credit("300", 60)) == [Decimal("104.50")]


def test_an_expired_credit_and_one_of_another_seller_pay_nothing() -> None:
    assert used(plan_of("100", 10), credit("30", -1)) == []
    assert used(plan_of("100", 10), credit("30", 60, "nobody")) == []


def test_what_is_billed_after_the_last_day_is_not_paid() -> None:
    # Two days of ten.
    assert used(plan_of("100", 240), credit("50", 1)) == [20]


def test_of_the_day_of_the_start_only_what_is_left_of_it_is_paid() -> None:
    # Calculator: from 18:00 on, 6 h of the last day; $100 in 12 h are $50 of 6 h.
    evening = MIDNIGHT + timedelta(hours=18)
    assert used(plan_of("100", 12), credit("80", 0), at=evening) == [50]
    assert used(plan_of("100", 12), credit("80", 1), at=evening) == [80]


def committed(usd: str, hours: float, **use: Any) -> Plan:
    """Return a plan whose term is bought for its job alone."""
    facts = {"terms": 1, "usd": Decimal(usd), "used_share": 0.1, "unused_usd": Decimal(1)}
    paid = CommitmentUse(**{**facts, "unused_is_counted": True, "nodes_held": None, **use})
    return plan_of(usd, hours).model_copy(update={"commitment": paid})


def test_a_term_that_is_bought_for_the_job_is_billed_over_all_its_hours() -> None:
    # By hand: $87,600 for a year are $10 an hour; until the end of the 10th day 240 h are billed.
    year = committed("87600", 100, term_years=1.0)
    assert used(year, credit("50000", 9)) == [2400]
    shared = committed("87600", 100, term_years=1.0, unused_is_counted=False)
    assert used(shared, credit("50000", 9)) == [50000]


def test_a_capacity_block_is_billed_at_once() -> None:
    block = committed("5040", 160, term_years=7 / 365, block_days=7)
    assert used(block, credit("9000", 0)) == [5040]


@given(
    cents=st.integers(1, 10**9),
    amounts=st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 400)), max_size=5),
    hours=st.floats(0.1, 10_000),
)
def test_credits_together_never_pay_more_than_the_job(
    cents: int, amounts: list[tuple[int, int]], hours: float
) -> None:
    plan = plan_of(str(Decimal(cents) / 100), hours)
    paid = used(plan, *(credit(str(usd), days) for usd, days in amounts))
    assert plan.whole_job is not None and plan.whole_job.usd is not None
    assert sum(paid) <= plan.whole_job.usd
    assert all(one >= 0 for one in paid)


def test_the_currency_is_that_of_the_pricebook() -> None:
    euro = Currency(code="EUR", per_usd=Decimal("0.92"), date=TODAY)
    found = with_own_terms(plan_of("100", 10), Pricebook(currency=euro), at=MIDNIGHT)
    assert found.currency is not None
    assert (found.currency.code, found.currency.per_usd) == ("EUR", 0.92)
    assert with_own_terms(found, Pricebook(), at=MIDNIGHT).currency is None
