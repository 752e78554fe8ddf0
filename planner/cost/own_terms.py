"""What a pricebook says beside prices: credits that pay a part, a currency to show amounts in."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, time, timedelta
from decimal import Decimal

from ...catalog.terms.pricebook import Credit, Pricebook
from ...catalog.units import HOURS_PER_YEAR, SECONDS_PER_HOUR
from ..plan.payment import CreditUse, OwnCurrency
from ..plan.plan import Plan, WholeJob
from .run_cost import CENT


def with_own_terms(plan: Plan, book: Pricebook, *, at: datetime) -> Plan:
    """Return a plan with what the credits of a pricebook pay of it, and its currency.

    Args:
        plan: finished.
        book: the user's own terms.
        at: when the job would start, with its zone.
    """
    known = book.currency
    currency = None
    if known is not None:
        currency = OwnCurrency(code=known.code, per_usd=float(known.per_usd), date=known.date)
    return plan.model_copy(
        update={
            "credits": credits_used(plan, book.credits_of(plan.offer.provider, at.date()), at=at),
            "currency": currency,
        }
    )


def _billed_hours(plan: Plan, job: WholeJob) -> float:
    """Return over how many hours from the start the dollars of a job are billed."""
    use = plan.commitment
    if use is None or not use.unused_is_counted:
        return job.hours
    if use.block_days is not None:
        return 0.0
    return use.terms * use.term_years * HOURS_PER_YEAR


def credits_used(plan: Plan, credits: Iterable[Credit], *, at: datetime) -> tuple[CreditUse, ...]:
    """Return what credits pay of a whole job that starts at a time, and of what is paid beside it.

    A credit pays what is billed until the end of its last day, in the zone of `at`, at one rate an
    hour, and nothing that one before it has paid. Of the day of the start only what is left counts.
    A capacity block is billed at once; a term that is bought for the job, over all its hours.
    """
    job = plan.whole_job
    if job is None or job.usd is None:
        return ()
    hours = _billed_hours(plan, job)
    used: list[CreditUse] = []
    paid = Decimal(0)
    for credit in credits:
        end = datetime.combine(credit.expires, time(), at.tzinfo) + timedelta(days=1)
        left_h = max(0.0, (end - at).total_seconds()) / SECONDS_PER_HOUR
        share = min(1.0, left_h / hours) if hours else float(left_h > 0)
        billed = ((job.usd + job.beside_usd) * Decimal(share)).quantize(CENT)
        covers = max(Decimal(0), min(credit.usd, billed - paid))
        paid += covers
        used.append(CreditUse(usd=credit.usd, covers_usd=covers, expires=credit.expires))
    return tuple(used)
