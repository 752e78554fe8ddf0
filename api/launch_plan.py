"""A plan made ready to launch: its model, its prices and its project; nothing is rented."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from .answers import estimate, known_stops
from .kept import keep
from .models.inputs import model as model_spec
from .models.inputs import read_inputs

if TYPE_CHECKING:
    from ..catalog.embedded import Catalogue
    from ..launcher.lifecycle.engine import Engine
    from ..launcher.prepare.prepare import Later
    from ..launcher.prepare.prepared import Prepared
    from ..launcher.prepare.request import LaunchRequest
    from ..launcher.store.estimates import Store
    from ..launcher.store.sourced_plan import SourcedPlan
    from ..planner.plan.plan import Plan
    from ..planner.search.machines.offers import SpotPrices
    from ..profiles.user_model.spec import ModelSpec


def launch(
    plan: str | Plan | None = None,
    request: LaunchRequest | None = None,
    *,
    model: str | Path | ModelSpec | None = None,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    workdir: Path | None = None,
    owner: str | None = None,
    project_name: str | None = None,
    project_file: str | Path | None = None,
    pricebook: Path | None = None,
    replan: bool = False,
    now: Callable[[], datetime] | None = None,
    unique: Callable[[], str] | None = None,
    engine: Engine | None = None,
    later: Sequence[Later] = (),
) -> Prepared:
    """Return a plan as the SkyPilot task that launches it, with what it costs.

    Nothing is written, and nothing is rented: `start` does both.

    Args:
        plan: As for `run`; None: the recommended one of the last estimate made in this folder. One
            of an estimate that was not kept (`keep`) does not say its model: give it too.
        request: How; a place for results must be given. Without a limit on the cost or a deadline,
            those of the plan's estimate hold.
        model: The model, where the plan does not say; it must be the one it was made for.
        params: Values for the functions of the file, for such a model.
        inputs: Shapes of the tensors of a plain module, for such a model.
        workdir: The folder that is sent; default: this one, or the model's own.
        owner: Who is named in the labels; default: this machine's user.
        project_name: The project the cost belongs to; default: that of the project's file, else the
            folder's name.
        project_file: A project's file, or its folder, whose limits it obeys (`limits` of the
            result); default: the `gpuplan.yaml` of this folder, unless another project is named.
        pricebook: The user's own terms, whose prices take the place of the plan's; default: those
            that it was made with.
        replan: Whether to ask the plan's question again first.
        now: The clock, for names; default: the current local time.
        unique: Returns six characters that no other run has; default: drawn at random.
        engine: What will rent it (`launches.context().engine`): what it lacks on this machine is
            listed with all else that is missing; default: nobody asks.
        later: Checks that are made again before anything is rented: listed with what is missing,
            and no refusal where nothing is.

    Raises:
        UsageError: The plan is stale, results would be lost, or what is asked for contradicts it.
        NoFeasiblePlanError: There is no such plan, or gpuplan's runner does not run it.
        PriceError: A price is not known.
        LimitError: The worst case costs more than is allowed.
    """
    from ..launcher.prepare import project
    from ..launcher.prepare.estimate_limits import with_estimate_limits
    from ..launcher.prepare.money.project_money import held_to_project
    from ..launcher.prepare.prepare import prepare
    from ..launcher.prepare.prepared import in_store
    from ..launcher.prepare.request import LaunchRequest
    from ..launcher.store.estimates import Store
    from ..launcher.store.launches import Ledger
    from .projects.limits import project_of_launch

    folder, store, clock = Path.cwd(), Store(), now or datetime.now

    def utc() -> datetime:
        return clock().astimezone(UTC)

    request = _on_this_machine(request or LaunchRequest())
    of_file, unchecked = project_of_launch(project_file, project_name, folder)
    if of_file is not None:
        project_name = project_name or of_file.name
    given, catalogue = _given(plan, request, store, pricebook=pricebook, replan=replan)
    request = with_estimate_limits(given, request, now=utc())
    spec = _model_of(given, request, model, params=params, inputs=inputs)
    root = workdir or project.default_workdir(None if spec is None else spec.path, folder)
    packages = project.brought_packages(spec)
    prepared = prepare(
        given,
        spec,
        project.read_project(root, owner=owner, named=project_name, packages=packages),
        request,
        catalogue=catalogue,
        own_stops=known_stops(),
        spot_prices=_spot_prices(given.plan, request, catalogue),
        folder=folder,
        now=clock,
        unique=unique or (lambda: uuid4().hex[:6]),
        engine=engine,
        later=later,
    )
    notes = prepared.notes if unchecked is None else (*prepared.notes, unchecked)
    prepared = replace(prepared, project_file=of_file, notes=notes)
    prepared = held_to_project(prepared, Ledger(store, now=utc), now=utc)
    # Nothing is written here: where there is no store yet, `start` makes it and labels the task.
    store_id = store.known_id()
    return prepared if store_id is None else in_store(prepared, store_id)


def _on_this_machine(request: LaunchRequest) -> LaunchRequest:
    """Return the request with what this machine's settings of SkyPilot say of it."""
    from ..launcher.skypilot.controller import has_controller_machine
    from ..launcher.skypilot.user_settings import aws_settings

    home = Path.home()
    has_controller = request.has_controller and has_controller_machine(os.environ, home)
    return replace(request, has_controller=has_controller, aws=aws_settings(os.environ, home))


def _given(
    plan: str | Plan | None,
    request: LaunchRequest,
    store: Store,
    *,
    pricebook: Path | None,
    replan: bool,
) -> tuple[SourcedPlan, Catalogue]:
    """Return the plan that is launched, at the user's terms, and the prices it is launched at."""
    from ..launcher.prepare import plan_choice
    from ..launcher.prepare.money.own_terms import at_own_terms

    given = plan_choice.chosen(plan, request, folder=Path.cwd(), store=store)
    catalogue = plan_choice.catalogue_of(given.origin, pricebook)
    if pricebook is not None:
        given = at_own_terms(given, catalogue, pricebook)
    if replan:
        given = _replanned(given, request, named=plan is not None)
    return given, catalogue


def _spot_prices(plan: Plan, request: LaunchRequest, catalogue: Catalogue) -> SpotPrices:
    """Return what the user's snapshots say of the spot prices of a plan's machines, by day."""
    from ..catalog.prices.spot_history import spot_history

    if not request.buys_spot(plan):
        return {}
    kind = plan.offer.provider, plan.offer.instance_type
    sold = (o for o in catalogue.offers if (o.provider, o.instance_type) == kind)
    return spot_history({(one.provider, one.region, one.instance_type) for one in sold})


def next_plan(prepared: Iterable[Prepared], request: LaunchRequest) -> Plan | None:
    """Return the next-best plan of the last estimate made in this folder.

    Args:
        prepared: What was tried, and had no capacity.
        request: How it would be launched.

    Returns:
        The plan, on other machines or in another place than all of those; None if there is none.
    """
    from ..launcher.prepare import plan_choice
    from ..launcher.store.estimates import Store

    kept = Store().newest_of(Path.cwd())
    if kept is None:
        return None
    return plan_choice.next_best(
        kept.estimate,
        request,
        catalogue=plan_choice.catalogue_of(kept.origin),
        besides=[one.plan for one in prepared],
    )


def _model_of(
    given: SourcedPlan,
    request: LaunchRequest,
    model: str | Path | ModelSpec | None,
    *,
    params: Mapping[str, Any] | None,
    inputs: Iterable[str],
) -> ModelSpec | None:
    """Return the model that is trained, or None where the user's own script is."""
    from ..launcher.prepare.plan_choice import refuse_another_model

    spec = None if given.origin is None else given.origin.spec
    if model is not None:
        spec = model_spec(model, params=params, inputs=inputs)
        refuse_another_model(given, spec)
    return spec if request.command is None else None


def _replanned(given: SourcedPlan, request: LaunchRequest, *, named: bool) -> SourcedPlan:
    """Return a plan as it is today: its question is asked again, and the answer kept."""
    from ..catalog.errors import UsageError
    from ..launcher.prepare import plan_choice
    from ..launcher.store.origin import files_hash
    from ..launcher.store.sourced_plan import SourcedPlan

    origin = given.origin
    if origin is None:
        raise UsageError(
            f"Plan {given.plan.id} does not say which question it answered.",
            fix="run `gpuplan estimate` again, without --replan here.",
        )
    asked = read_inputs(
        origin.spec,
        precisions=origin.question.choices.precisions,
        machine=origin.question.machine,
        offers=None if origin.offers is None else Path(origin.offers),
        pricebook=None if origin.pricebook is None else Path(origin.pricebook),
        curves=origin.curves,
        without_curves_of=origin.without_curves_of,
    )
    answer = estimate(asked, origin.question)
    keep(answer, inputs=asked, question=origin.question, folder=Path(origin.folder))
    return SourcedPlan(
        plan=plan_choice.same_plan(given.plan, answer)
        if named
        else plan_choice.cheapest(answer, request, catalogue=asked.catalogue),
        estimate=answer,
        origin=origin.model_copy(update={"files_hash": files_hash(origin.spec)}),
    )
