"""The key by which finished plans are ordered, as candidates are before they are finished."""

from __future__ import annotations

from ...plan.plan import Plan
from ..order import Order, sort_key
from .recommended import cost_of

UNKNOWN = float("inf")


def plan_order(plan: Plan, order: Order, max_oom: float) -> tuple[float, ...]:
    """Return the sort key of a finished plan, as `Candidate.order` does before."""
    cost, price, job = cost_of(plan), plan.usd_per_hour, plan.whole_job
    return plan.p_oom is not None and plan.p_oom > max_oom, *sort_key(
        order,
        cost=UNKNOWN if cost is None else cost,
        price=UNKNOWN if price is None else price,
        seconds=1 / plan.samples_per_s if job is None else job.hours,
        size=plan.accelerators,
        peak_bytes=plan.peak_memory_bytes.value,
        samples_per_s=plan.samples_per_s,
        carbon=carbon_of(plan),
    )


def carbon_of(plan: Plan) -> float:
    """Return kg CO2e as `Candidate.kg_co2e` counts them; infinite where not known."""
    run, energy = plan.run, plan.energy
    if run is None:
        kg = None if energy is None else energy.kg_co2e_per_million_samples
    elif run.kg_co2e is not None and run.limited_by is not None:
        kg = run.kg_co2e / (run.trained_samples or 1.0)
    else:
        kg = run.kg_co2e
    return UNKNOWN if kg is None else kg
