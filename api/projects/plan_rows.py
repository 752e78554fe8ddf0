"""Experiments that name a kept plan: it must be what else the project says of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...catalog.errors import UsageError
from ...catalog.listing.query import parse_accelerator_request, resolve_jurisdiction
from ...catalog.names import resolve_provider
from ...catalog.text.money import format_money
from ...catalog.text.quantity import format_duration
from ...catalog.units import SECONDS_PER_HOUR
from ...planner.budget.project.experiment import Experiment
from ...planner.plan.plan import Plan
from ..kept import kept_plan

if TYPE_CHECKING:
    from ...catalog.snapshot import Catalogue
    from ...launcher.store.sourced_plan import SourcedPlan

Fault = tuple[str, str, str]
"""The field of the project file, what it says, and what the plan is."""


def kept_of(spec: Experiment, catalogue: Catalogue) -> SourcedPlan:
    """Return the kept plan that an experiment names.

    Raises:
        UsageError: There is none, it has no cost, or it is not what else the project says.
    """
    assert spec.plan is not None
    kept = kept_plan(spec.plan)
    plan = kept.plan
    if plan.job is None:
        raise UsageError(
            f"plan {plan.id} has no amount of work, so that it has no cost.",
            fix="estimate it with --tokens, --samples, --epochs or --steps.",
        )
    for check in (_other_place, _other_machine, _beyond_limits):
        fault = check(spec, plan, catalogue)
        if fault is not None:
            field, said, found = fault
            raise UsageError(
                f"plan {plan.id} {found}, and {field} is {said} in this file.",
                fix=f"name a plan that keeps to it, or another `{field}` for this experiment.",
            )
    return kept


def _other_place(spec: Experiment, plan: Plan, catalogue: Catalogue) -> Fault | None:
    offer = plan.offer
    sellers = {resolve_provider(one, catalogue=catalogue) for one in spec.provider}
    if sellers and offer.provider not in sellers:
        return "provider", _listed(spec.provider), f"is of {offer.provider}"
    if spec.region and not {offer.region, offer.zone} & set(spec.region):
        return "region", _listed(spec.region), f"is in {offer.region}"
    countries = {
        country for one in spec.jurisdiction for country in resolve_jurisdiction(one, catalogue)
    }
    region = catalogue.regions.get((offer.provider, offer.region))
    country = None if region is None else region.jurisdiction
    # Where a region's country is not known, it may be another one.
    if countries and country not in countries:
        where = "whose country is not known" if country is None else f"in {country}"
        found = f"is in {offer.provider} {offer.region}, {where}"
        return "jurisdiction", _listed(spec.jurisdiction), found
    return None


def _other_machine(spec: Experiment, plan: Plan, catalogue: Catalogue) -> Fault | None:
    offer = plan.offer
    wanted = [parse_accelerator_request(one, catalogue=catalogue) for one in spec.accelerator]
    per_node = offer.accelerators_per_node
    if wanted and not any(
        offer.accelerator in one.names and one.per_instance in (None, per_node) for one in wanted
    ):
        found = f"has {per_node} × {offer.accelerator} a machine"  # noqa: RUF001
        return "accelerator", _listed(spec.accelerator), found
    if spec.instance and offer.instance_type not in spec.instance:
        return "instance", _listed(spec.instance), f"is on {offer.instance_type}"
    if spec.nodes and plan.nodes not in spec.nodes:
        return "nodes", _listed(map(str, spec.nodes)), f"takes {_machines(plan)}"
    if spec.max_nodes is not None and plan.nodes > spec.max_nodes:
        return "max_nodes", str(spec.max_nodes), f"takes {_machines(plan)}"
    is_spot = offer.purchase == "spot"
    if spec.purchase in ("on-demand", "spot") and (spec.purchase == "spot") is not is_spot:
        return "purchase", spec.purchase, f"is bought {offer.purchase}"
    return None


def _beyond_limits(spec: Experiment, plan: Plan, catalogue: Catalogue) -> Fault | None:
    del catalogue
    job, usd = plan.job, plan.likely_usd
    if spec.deadline is not None and job is not None and job.hours > _hours(spec.deadline):
        longest = format_duration(_hours(spec.deadline))
        return "deadline", longest, f"takes {format_duration(job.hours)}"
    if spec.budget is not None and (usd is None or usd > spec.budget):
        found = "has no known price" if usd is None else f"costs {format_money(usd)}"
        return "budget", format_money(spec.budget), found
    return None


def _machines(plan: Plan) -> str:
    return "1 machine" if plan.nodes == 1 else f"{plan.nodes} machines"


def _hours(seconds: float) -> float:
    return seconds / SECONDS_PER_HOUR


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
