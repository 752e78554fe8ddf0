"""What a job uses of a commitment or a reservation, and what of it is left."""

from __future__ import annotations

import math
from decimal import Decimal

from ...catalog.terms.terms_of_offer import Term
from ..plan.parts import WholeJob
from ..plan.payment import CommitmentUse
from .launch_cost import UNUSED
from .run_cost import CENT
from .tax import taxed


def commitment_use(
    term: Term, job: WholeJob | None, *, nodes: int, tax_percent: Decimal | None
) -> CommitmentUse:
    """Return what a job uses of the term its machines are paid for.

    Args:
        term: that the price of a node is of.
        job: the whole job; None where no amount of work was given.
        nodes: how many are rented.
        tax_percent: on everything that is billed; None: none is counted.
    """
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
    terms = max(1, math.ceil(job.hours / float(term.hours)))
    usd = job.usd if is_counted else taxed(terms * one_usd, tax_percent)
    left = taxed(unused, tax_percent) if is_counted else max(Decimal(0), usd - job.usd)
    return CommitmentUse(
        term_years=float(term.years),
        terms=terms,
        usd=usd,
        used_share=job.hours / (terms * float(term.hours)),
        unused_usd=left,
        unused_is_counted=is_counted,
        nodes_held=term.count,
    )
