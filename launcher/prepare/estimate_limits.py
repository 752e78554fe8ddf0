"""The budget and the deadline that a plan was estimated with, as limits of its launch. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from ..store.sourced_plan import SourcedPlan
from .request import LaunchRequest


def with_estimate_limits(
    given: SourcedPlan, request: LaunchRequest, *, now: datetime
) -> LaunchRequest:
    """Return the request held to the limits of the plan's estimate, where it gives none itself.

    Args:
        given: the plan, with the question that it answers.
        request: as it was asked for.
        now: with its time zone; the deadline of an estimate counts from the launch.
    """
    if given.origin is None:
        return request
    money, guard = given.origin.question.money, request.guard
    if money.budget_usd is not None and guard.max_cost_usd is None:
        source = "the --budget of the estimate"
        guard = replace(guard, max_cost_usd=money.budget_usd, max_cost_source=source)
        request = replace(request, guard=guard)
    if money.deadline_s is not None and request.deadline is None:
        request = replace(
            request,
            deadline=now + timedelta(seconds=money.deadline_s),
            deadline_source="the --deadline of the estimate",
        )
    return request
