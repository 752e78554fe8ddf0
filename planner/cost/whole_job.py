"""A run with its start and its bill: what ranks plans, and what `launch` then shows of one."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Literal, NamedTuple

from ...catalog.types import Provider
from ...catalog.units import SECONDS_PER_HOUR
from ..goodput.expected_run import ExpectedRun, mean_training_s, training_s_in
from ..goodput.restarts import Conditions
from ..plan.parts import Stops
from ..plan.plan import Estimated, WholeJob
from .billing import BY_THE_SECOND_S, Lengths, mean_billed_us
from .launch_cost import LaunchCost, launch_cost
from .paid_whole import MICROSECONDS_PER_SECOND, PaidWhole
from .start_up import ends_with_start_s, start_up_s

ROUNDED_USD = 0.02
"""A bill may be less than this above its exact sum: it and its tax are rounded to a cent."""


def expected_usd(
    elapsed_s: float,
    *,
    nodes: int,
    usd_per_hour: float,
    billing: Provider | None,
    paid_whole: PaidWhole | None = None,
    chance_within: Callable[[float], float] | None = None,
    lengths: Lengths | None = None,
) -> float:
    """Return what machines cost that run so long, start included, as the provider bills them.

    Equals `WholeJob.usd` to its rounding to a cent; a search asks thousands of times.

    Args:
        elapsed_s: mean time of the machines.
        nodes: how many are rented.
        usd_per_hour: one node.
        billing: the provider, with its increment and minimum.
        paid_whole: terms or blocks of each node, paid used or not; None: what is used is paid.
        chance_within: seconds from the first step → the chance that the run takes no longer, for
            what is paid after the terms or blocks; None: it takes what is expected.
        lengths: of the runs, where bills are rounded up by more than seconds; None: they take what
            is expected.
    """
    mean_us = round(elapsed_s * MICROSECONDS_PER_SECOND)
    paid_s = mean_billed_us(mean_us, billing, lengths) / MICROSECONDS_PER_SECOND
    if paid_whole is not None:
        ran_us = round(paid_s * MICROSECONDS_PER_SECOND)
        further = paid_whole.after_planned(ran_us, _beyond(chance_within))
        paid_s = (paid_whole.paid_us(ran_us) + further.paid_us) / MICROSECONDS_PER_SECOND
    return nodes * usd_per_hour * paid_s / SECONDS_PER_HOUR


def _beyond(chance_within: Callable[[float], float] | None) -> Callable[[float], float] | None:
    """Return seconds of the machines → the chance that they run longer; None where not known."""
    if chance_within is None:
        return None
    return lambda seconds: 1 - chance_within(seconds - start_up_s())


def training_s_within(
    *,
    deadline_s: float | None,
    budget_usd: float,
    nodes: int,
    usd_per_hour: float,
    billing: Provider | None,
    stops: Conditions | None = None,
    paid_whole: PaidWhole | None = None,
    start_s: float | None = None,
    tail_s: float = 0.0,
) -> tuple[float, Literal["budget", "deadline"]]:
    """Return for how many seconds a job may train within its limits, and which limit ends it.

    Its start, its checkpoints, its failures and what the provider rounds up are paid from the same
    budget; 0 or less where nothing is left for training. Waits for machines count as if billed.
    `start_s` is what its machines take before it trains (None: as rented ones), `tail_s` for how
    long they are billed after the job, where that is not in the budget.
    """

    def trained_s(elapsed_s: float) -> float:
        left_s = elapsed_s - (start_up_s() if start_s is None else start_s)
        return left_s if stops is None else training_s_in(left_s, stops)

    billable_s = (budget_usd - ROUNDED_USD) * SECONDS_PER_HOUR / (nodes * usd_per_hour)
    increment_s = billing.billing_increment_s if billing is not None else None
    if increment_s:
        billable_s = math.floor(billable_s / increment_s) * increment_s
        if increment_s > BY_THE_SECOND_S:
            # Of the last increment half is used on average, and so it is after every stop.
            rate_per_s = 0.0 if stops is None else stops.rate_per_s
            billable_s = (billable_s - increment_s / 2) / (1 + rate_per_s * increment_s / 2)
    if billing is not None and billable_s < (billing.minimum_s or 0.0):
        billable_s = 0.0
    billable_s -= tail_s
    if paid_whole is not None:
        paid_s = (budget_usd + ROUNDED_USD) * SECONDS_PER_HOUR / (nodes * usd_per_hour)
        billable_s = paid_whole.usable_s(paid_s)
    if deadline_s is not None and deadline_s < billable_s:
        return trained_s(deadline_s), "deadline"
    return trained_s(billable_s), "budget"


class Job(NamedTuple):
    """A whole job, and the run in it with its stops; None where nothing is known of those."""

    whole: WholeJob
    run: ExpectedRun | None


def whole_job(
    training_s: Estimated,
    *,
    nodes: int,
    usd_per_hour: Decimal | None,
    spot_usd_per_hour: Decimal | None,
    billing: Provider | None,
    stops: Stops | None = None,
    spot_stops: Stops | None = None,
    paid_whole: PaidWhole | None = None,
    tax_percent: Decimal | None = None,
    is_own: bool = False,
) -> Job:
    """Return what a run takes and costs from its request to the end of its machines.

    Args:
        training_s: the run itself.
        nodes: how many are rented.
        usd_per_hour: one node; None when unknown, and then every dollar field is None.
        spot_usd_per_hour: one node on the spot market, if known.
        billing: the provider, with its increment and minimum.
        stops: what stops the run on machines bought as planned, and what its checkpoints take.
        spot_stops: the same on spot machines.
        paid_whole: terms or blocks of each node, paid used or not (for this job alone).
        tax_percent: on everything that is billed; None: none is counted.
        is_own: whether they are the user's own, which nobody provisions.
    """

    def cost(
        node_usd_per_hour: Decimal, of: Stops | None, whole: PaidWhole | None = None
    ) -> LaunchCost:
        return launch_cost(
            training_s,
            nodes=nodes,
            usd_per_hour=node_usd_per_hour,
            dearest_usd_per_hour=node_usd_per_hour,
            billing=billing,
            stops=of,
            paid_whole=whole,
            tax_percent=tax_percent,
            is_own=is_own,
        )

    # Without a price the hours are still known: at no price they are the same.
    timed = cost(usd_per_hour or Decimal(0), stops, paid_whole)
    found = None if usd_per_hour is None else timed
    on_spot = None if spot_usd_per_hour is None else cost(spot_usd_per_hour, spot_stops)
    ran_s, low_s, high_s = _ends(training_s, timed.run)
    low_s, high_s = ends_with_start_s(ran_s, low_s, high_s, is_own=is_own)
    whole = WholeJob(
        hours=(start_up_s(is_own=is_own) + ran_s) / SECONDS_PER_HOUR,
        hours_low=low_s / SECONDS_PER_HOUR,
        hours_high=high_s / SECONDS_PER_HOUR,
        usd=found and found.usd_expected,
        usd_low=found and found.usd_low,
        usd_high=found and found.usd_high,
        spot_usd=on_spot and on_spot.usd_expected,
        cost_lines=found.lines if found else (),
    )
    return Job(whole=whole, run=timed.run)


def _ends(time_s: Estimated, run: ExpectedRun | None) -> tuple[float, float, float]:
    if run is None:
        mean_s = mean_training_s(time_s)
        return mean_s, min(time_s.low, mean_s), max(time_s.high, mean_s)
    return run.elapsed_s, *run.ends_s
