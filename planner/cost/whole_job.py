"""A run with its start and its bill: what ranks plans, and what `launch` then shows of one."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Literal

from ...catalog.types import Provider
from ...catalog.units import SECONDS_PER_HOUR
from ..plan.plan import Estimated, WholeJob
from .launch_cost import LaunchCost, billed_s, launch_cost, startups


def start_up_s() -> float:
    """Return seconds that every node is expected to be paid for before it trains."""
    return sum(one.value_s for one in startups())


def expected_usd(
    elapsed_s: float, *, nodes: int, usd_per_hour: float, billing: Provider | None
) -> float:
    """Return what machines cost that run so long, start included, as the provider bills them.

    Equals `WholeJob.usd` to the rounding of its lines to cents; a search asks thousands of times.
    """
    return nodes * usd_per_hour * billed_s(elapsed_s, billing) / SECONDS_PER_HOUR


def training_s_within(
    *,
    deadline_s: float | None,
    budget_usd: float,
    nodes: int,
    usd_per_hour: float,
    billing: Provider | None,
) -> tuple[float, Literal["budget", "deadline"]]:
    """Return for how many seconds a job may train within its limits, and which limit ends it.

    Its start and what the provider rounds up are paid from the same budget; 0 or less where
    nothing is left for training.
    """
    # The lines of a bill are rounded to cents, so that their sum may be a few cents higher.
    billable_s = (budget_usd - 0.05) * SECONDS_PER_HOUR / (nodes * usd_per_hour)
    increment_s = billing.billing_increment_s if billing is not None else None
    if increment_s:
        billable_s = math.floor(billable_s / increment_s) * increment_s
    if billing is not None and billable_s < (billing.minimum_s or 0.0):
        billable_s = 0.0
    if deadline_s is not None and deadline_s < billable_s:
        return deadline_s - start_up_s(), "deadline"
    return billable_s - start_up_s(), "budget"


def whole_job(
    training_s: Estimated,
    *,
    nodes: int,
    usd_per_hour: Decimal | None,
    spot_usd_per_hour: Decimal | None,
    billing: Provider | None,
) -> WholeJob:
    """Return what a run takes and costs from its request to the end of its machines.

    Args:
        training_s: the run itself.
        nodes: how many are rented.
        usd_per_hour: one node; None when unknown, and then every dollar field is None.
        spot_usd_per_hour: one node on the spot market, if known.
        billing: the provider, with its increment and minimum.
    """
    start_s = start_up_s()

    def cost(node_usd_per_hour: Decimal | None) -> LaunchCost | None:
        if node_usd_per_hour is None:
            return None
        return launch_cost(
            training_s,
            nodes=nodes,
            usd_per_hour=node_usd_per_hour,
            dearest_usd_per_hour=node_usd_per_hour,
            billing=billing,
        )

    found, on_spot = cost(usd_per_hour), cost(spot_usd_per_hour)
    hours = [(start_s + s) / SECONDS_PER_HOUR for s in _ends(training_s)]
    return WholeJob(
        hours=hours[0],
        hours_low=hours[1],
        hours_high=hours[2],
        usd=found and found.usd_expected,
        usd_low=found and found.usd_low,
        usd_high=found and found.usd_high,
        spot_usd=on_spot and on_spot.usd_expected,
        cost_lines=found.lines if found else (),
    )


def _ends(time_s: Estimated) -> tuple[float, float, float]:
    return time_s.value, time_s.low, time_s.high
