"""Which plan is launched, and whether it still holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from ...catalog.errors import NoFeasiblePlanError, PriceError, UsageError
from ...catalog.listing.sources import PriceSource
from ...catalog.snapshot import Catalogue, load_catalogue
from ...planner.plan.answer.estimate import Estimate
from ...planner.plan.plan import Plan
from ...planner.plan.question import MOST_OOM
from ...profiles.user_model.spec import ModelSpec
from ..skypilot.placement import Place, own_place, places
from ..store.estimates import Store
from ..store.origin import Origin, files_hash
from ..store.plan_file import given_plan
from ..store.sourced_plan import SourcedPlan
from .request import LaunchRequest

AGAIN = "give --replan to estimate again with the same question, or run `gpuplan estimate`."


def chosen(
    named: str | Plan | None, request: LaunchRequest, *, folder: Path, store: Store
) -> SourcedPlan:
    """Return the plan that is named, else the recommended one of the last estimate of a folder.

    Where that cannot be launched as it is asked for, the cheapest that can is returned.

    Raises:
        UsageError: there is no such plan, or no estimate was made here.
        NoFeasiblePlanError: the last estimate has no plan that can be run there.
    """
    providers = request.providers
    if named is not None:
        given = given_plan(named)
        if providers and given.plan.offer.provider not in providers:
            raise UsageError(
                f"Plan {given.plan.id} is on {given.plan.offer.provider}, not on"
                f" {' or '.join(providers)}.",
                fix="leave --provider out, or name another plan.",
            )
        return given
    kept = store.newest_of(folder)
    if kept is None:
        raise UsageError(
            "No plan is named, and no estimate was made in this folder.",
            fix="run `gpuplan estimate model.py` here first, or name a plan of `gpuplan plans`.",
        )
    catalogue = catalogue_of(kept.origin)
    plan = _recommended(kept.estimate, request, catalogue)
    plan = plan or cheapest(kept.estimate, request, catalogue=catalogue)
    return SourcedPlan(
        plan=plan,
        estimate=kept.estimate,
        origin=kept.origin,
    )


def catalogue_of(origin: Origin | None, pricebook: Path | None = None) -> Catalogue:
    """Return today's catalogue, with the user's own offers and terms that a plan was made with.

    Args:
        origin: what the plan was made from.
        pricebook: the user's own terms in place of those.
    """
    if origin is None:
        return load_catalogue(None, pricebook)
    own = pricebook or (None if origin.pricebook is None else Path(origin.pricebook))
    return load_catalogue(None if origin.offers is None else Path(origin.offers), own)


def _recommended(estimate: Estimate, request: LaunchRequest, catalogue: Catalogue) -> Plan | None:
    """Return the recommended plan where it can be launched as it is asked for."""
    plans = {plan.id: plan for plan in estimate.plans if _is_launchable(plan, request)}
    for one in (estimate.recommended, estimate.recommended_on_large_clouds):
        if one is None or one.id not in plans:
            continue
        try:
            tried(plans[one.id], request, catalogue)
        except (UsageError, PriceError):
            continue  # SkyPilot does not reach it, or it has no price there.
        return plans[one.id]
    return None


def _is_launchable(plan: Plan, request: LaunchRequest) -> bool:
    """Return whether gpuplan runs a plan, or a command is given, where it may be launched."""
    runs = plan.runnable is not False and not plan.needs_port
    providers = request.providers
    return (runs or request.command is not None) and (
        not providers or plan.offer.provider in providers
    )


def cheapest(estimate: Estimate, request: LaunchRequest, *, catalogue: Catalogue) -> Plan:
    """Return the plan of an estimate that trains for the least money where it would be launched.

    One that may run out of memory with a larger chance than was accepted is for a person to name.

    Raises:
        NoFeasiblePlanError: there is none.
        PriceError: no price is known.
    """
    providers = request.providers
    risky: list[Plan] = []
    priced: list[tuple[float, int, Plan]] = []
    unpriced: list[PriceError] = []
    for plan in estimate.plans:
        if not _is_launchable(plan, request):
            continue
        if _may_not_fit(plan, estimate):
            risky.append(plan)
            continue
        try:
            priced.append((_usd_per_sample(plan, request, catalogue), plan.position, plan))
        except PriceError as error:
            unpriced.append(error)
        except UsageError:
            continue  # SkyPilot does not reach it.
    if priced:
        return min(priced, key=lambda one: one[:2])[2]
    if unpriced:
        raise unpriced[0]
    if risky:
        raise _only_risky(risky)
    on = f" on {' or '.join(providers)}" if providers else ""
    wanted = f" --provider {','.join(providers)}" if providers else ""
    raise NoFeasiblePlanError(
        f"The last estimate made in this folder has no priced plan{on} that gpuplan runs.",
        fix=f"estimate again with{wanted or ' other machines'}, or name a plan.",
    )


def _may_not_fit(plan: Plan, estimate: Estimate) -> bool:
    """Return whether it may run out of memory with a larger chance than the question accepts."""
    asked = estimate.question
    accepted = MOST_OOM if asked is None else asked.limits.max_oom
    return plan.p_oom is not None and plan.p_oom > accepted


def _only_risky(plans: Iterable[Plan]) -> NoFeasiblePlanError:
    plan = min(plans, key=lambda one: (one.p_oom or 0.0, one.position))
    chance = f"{math.ceil((plan.p_oom or 0.0) * 1000) / 10:g} %"
    return NoFeasiblePlanError(
        "Every plan of the last estimate that gpuplan would launch may run out of memory; plan"
        f" {plan.id} does with a chance of {chance}, the least of them.",
        fix=f"name the plan to accept that (`gpuplan launch {plan.id}`), or estimate again with"
        " other machines.",
    )


def next_best(
    estimate: Estimate,
    request: LaunchRequest,
    *,
    catalogue: Catalogue,
    besides: Iterable[Plan],
) -> Plan | None:
    """Return the cheapest plan on machines, or in a place, that have not been tried."""
    tried_kinds = {_machines(plan) for plan in besides}
    left = tuple(plan for plan in estimate.plans if _machines(plan) not in tried_kinds)
    try:
        return cheapest(estimate.model_copy(update={"plans": left}), request, catalogue=catalogue)
    except (NoFeasiblePlanError, PriceError):
        return None


def same_plan(old: Plan, estimate: Estimate) -> Plan:
    """Return the plan of a new estimate that is the old one, at today's prices and predictions.

    Raises:
        NoFeasiblePlanError: it is not among them.
    """
    for plan in estimate.plans:
        if _kind(plan) == _kind(old):
            return plan
    best = f" The cheapest now is {estimate.plans[0].id}." if estimate.plans else ""
    raise NoFeasiblePlanError(
        f"Estimated again, plan {old.id} ({old.string} on {old.place}) is not among"
        f" the best any more.{best}",
        fix="choose one of `gpuplan plans`.",
    )


def tried(plan: Plan, request: LaunchRequest, catalogue: Catalogue) -> tuple[Place, ...]:
    """Return where a plan is launched, in order; raises what `places` raises."""
    spot = request.buys_spot(plan)
    if request.infra is not None:
        return (own_place(request.infra, plan, spot=spot),)
    return places(plan, catalogue, spot=spot, regions=request.regions, zones=request.zones)


def refuse_stale(given: SourcedPlan, catalogue: Catalogue) -> None:
    """Refuse a plan whose model or prices have changed since it was made.

    Raises:
        UsageError: they have.
    """
    plan, origin = given.plan, given.origin
    if origin is not None and files_hash(origin.spec) != origin.files_hash:
        raise UsageError(
            f"{origin.spec.path.name}, or a file that it imports, has changed since plan {plan.id}"
            " was made.",
            fix=AGAIN,
        )
    now = _prices_of(catalogue.snapshot_date, catalogue.price_source)
    was = now
    if given.estimate is not None:
        was = _prices_of(given.estimate.catalog.snapshot_date, given.estimate.catalog.source)
    if was != now:
        raise UsageError(
            f"Plan {plan.id} was made with the prices of {was}; this gpuplan has those of {now}.",
            fix=AGAIN,
        )


def _prices_of(snapshot_date: date, source: PriceSource) -> str:
    """Return which snapshot prices are of: a user may refresh them several times a day."""
    made_at = source.made_at
    return str(snapshot_date) if made_at is None else f"{made_at:%Y-%m-%d %H:%M:%S} UTC"


def refuse_another_model(given: SourcedPlan, spec: ModelSpec) -> None:
    """Refuse a model, or params, that are not those the plan was made for.

    Raises:
        UsageError: they are not.
    """
    if given.origin is None:
        return
    planned = given.origin.spec
    if (planned.path, planned.class_name) != (spec.path, spec.class_name):
        raise UsageError(
            f"Plan {given.plan.id} was made for {planned.text}, not for {spec.text}.",
            fix="leave --model out, or estimate that model.",
        )
    if planned.params != spec.params or planned.inputs != spec.inputs:
        raise UsageError(
            f"Plan {given.plan.id} was made with {_shown(planned.params)}, not with"
            f" {_shown(spec.params)}.",
            fix="leave --param and --input out, or estimate with these.",
        )


def _usd_per_sample(plan: Plan, request: LaunchRequest, catalogue: Catalogue) -> float:
    """Return what a sample costs where the plan is tried first."""
    first, *_ = tried(plan, request, catalogue)
    return float(first.usd_per_hour) * plan.nodes / plan.samples_per_s


def _machines(plan: Plan) -> tuple[object, ...]:
    offer = plan.offer
    return offer.provider, offer.region, offer.instance_type, offer.purchase


def _kind(plan: Plan) -> tuple[object, ...]:
    offer = plan.offer
    return offer.provider, offer.instance_type, offer.purchase, plan.nodes, plan.string


def _shown(params: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in params.items()) or "no params"
