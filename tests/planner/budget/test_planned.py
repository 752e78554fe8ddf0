"""From the plan of a run to what a project counts of it."""

from decimal import Decimal

import pytest
from answers import make_offer, make_plan

from gpuplan.planner.budget.ledger import ledger, total_usd
from gpuplan.planner.budget.planned import run_cost_of
from gpuplan.planner.cost.paid_whole import AFTER_HOURS, PaidWhole
from gpuplan.planner.cost.whole_job import whole_job
from gpuplan.planner.plan.payment import CommitmentUse
from gpuplan.planner.plan.plan import Estimated
from tests.support.projects import make_books, make_project

YEAR_H = 8760


@pytest.mark.parametrize("share", ["0.6", "1", "1.4"])
def test_a_project_of_one_run_costs_what_the_plan_of_the_run_does(share: str) -> None:
    """The hours after its term, on demand, are those of the plan, in a row of their own."""
    term = PaidWhole(lengths_s=(YEAR_H * 3600.0,), hourly_share=Decimal(share))
    training_s = 1.2 * YEAR_H * 3600
    exactly = Estimated(value=training_s, low=training_s, high=training_s, basis="measured")
    job = whole_job(
        exactly,
        nodes=1,
        usd_per_hour=Decimal(10),
        spot_usd_per_hour=None,
        billing=None,
        paid_whole=term,
    ).whole
    plan = make_plan(
        whole_job=job,
        offer=make_offer(purchase="committed", term_years=1.0, usd_per_hour=10.0),
        commitment=CommitmentUse(
            term_years=1,
            terms=1,
            usd=Decimal(87_600),
            used_share=1,
            unused_usd=Decimal(0),
            unused_is_counted=True,
            nodes_held=None,
        ),
    )
    cost = run_cost_of(plan)
    assert cost.instance_hours == pytest.approx(job.hours)
    assert AFTER_HOURS not in [line.name for line in cost.lines]
    rows = ledger(make_books(make_project(months=24), a=cost))
    assert total_usd(rows) == pytest.approx(job.usd, abs=Decimal("0.3"))
    after = [row for row in rows if row.is_after_term]
    assert bool(after) == (Decimal(share) <= 1)
    assert all(row.unit_usd == 10 * Decimal(share) for row in after)
