"""What a job uses of a commitment or a reservation, and what of it is left."""

from __future__ import annotations

from decimal import Decimal

from ...catalog.terms.terms_of_offer import Term
from ...catalog.units import HOURS_PER_DAY, HOURS_PER_YEAR, SECONDS_PER_HOUR
from ..plan.parts import WholeJob
from ..plan.payment import CommitmentUse
from .paid_whole import FURTHER_LINES, REST_LINES, SECONDS_PER_DAY, UNUSED, PaidWhole
from .run_cost import CENT
from .tax import taxed


def commitment_use(
    term: Term,
    job: WholeJob | None,
    *,
    nodes: int,
    tax_percent: Decimal | None,
    paid_whole: PaidWhole | None = None,
) -> CommitmentUse:
    """Return what a job uses of the term its machines are paid for.

    Args:
        term: that the price of a node is of.
        job: the whole job; None where no amount of work was given.
        nodes: how many are rented.
        tax_percent: on everything that is billed; None: none is counted.
        paid_whole: how the job pays for whole terms; None where it pays its share of them.
    """
    if term.block_days:
        return _block_use(term, job, nodes=nodes, tax_percent=tax_percent)
    one_usd = (term.hours * term.usd_per_hour * nodes).quantize(CENT)
    if job is None or job.usd is None:
        return CommitmentUse(
            term_years=float(term.years),
            terms=1,
            usd=taxed(one_usd, tax_percent),
            used_share=None,
            unused_usd=None,
            unused_is_counted=False,
            nodes_held=term.count,
        )
    unused = sum((line.usd for line in job.cost_lines if line.name == UNUSED), Decimal(0))
    is_counted = any(line.name == UNUSED for line in job.cost_lines)
    whole = paid_whole or PaidWhole.of(term)
    terms = whole.count(job.hours * SECONDS_PER_HOUR)
    usd = taxed(terms * one_usd, tax_percent)
    goes_on = any(line.name in FURTHER_LINES for line in job.cost_lines)
    if is_counted and not goes_on:
        usd = job.usd
    further = job.usd - usd if goes_on else None
    left = taxed(unused, tax_percent) if is_counted else max(Decimal(0), usd - job.usd)
    return CommitmentUse(
        term_years=float(term.years),
        terms=terms,
        usd=usd,
        used_share=min(1.0, job.hours / (terms * float(term.hours))),
        unused_usd=left,
        unused_is_counted=is_counted,
        further_usd=further,
        nodes_held=term.count,
    )


def _further_usd(job: WholeJob, tax_percent: Decimal | None) -> Decimal:
    """Return what more terms or blocks cost on average, with tax, where the run takes longer."""
    lines = (line.usd for line in job.cost_lines if line.name in FURTHER_LINES)
    return taxed(sum(lines, Decimal(0)), tax_percent)


def _block_use(
    term: Term, job: WholeJob | None, *, nodes: int, tax_percent: Decimal | None
) -> CommitmentUse:
    """Return what a job uses of the capacity blocks that it rents; without one, of the shortest."""
    whole = PaidWhole.of(term)
    is_known = job is not None and job.usd is not None
    hours = job.hours if is_known and job is not None else 0.0
    further = _further_usd(job, tax_percent) if is_known and job is not None else Decimal(0)
    paid_s = whole.paid_s(hours * SECONDS_PER_HOUR) or whole.lengths_s[0]
    days = round(paid_s / SECONDS_PER_DAY)
    net = (Decimal(days * HOURS_PER_DAY) * term.usd_per_hour * nodes).quantize(CENT)
    lines = job.cost_lines if is_known and job is not None else ()
    unused = sum((line.usd for line in lines if line.name in REST_LINES), Decimal(0))
    return CommitmentUse(
        term_years=float(Decimal(days * HOURS_PER_DAY) / HOURS_PER_YEAR),
        terms=whole.count(hours * SECONDS_PER_HOUR),
        usd=job.usd - further if job is not None and job.usd else taxed(net, tax_percent),
        used_share=hours * SECONDS_PER_HOUR / paid_s if is_known else None,
        unused_usd=taxed(unused, tax_percent) if is_known else None,
        unused_is_counted=is_known,
        further_usd=further or None,
        nodes_held=None,
        block_days=days,
    )
