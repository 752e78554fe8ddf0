"""The questions: what training takes and costs, whether it fits, what an answer rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..catalog.errors import GpuplanError
from ..catalog.vocabulary import PRECISIONS, Precision
from ..planner.plan.answer.answer_parts import CatalogueFacts, Headlines, WorkloadFacts
from ..planner.plan.answer.estimate import Estimate
from ..planner.plan.plan import Plan, WaysToPay
from ..planner.plan.question import Question
from ..planner.plan.refusals import refuse_other_type
from ..planner.search.progress import Progress, untold
from ..profiles.profile import Profile
from ..profiles.user_model.spec import ModelSpec
from .models.config_facts import param_rules
from .models.evaluated import with_eval_samples
from .models.from_weights import with_start
from .models.inputs import Inputs, chosen_curves, counted_in_tokens, read_inputs
from .models.reduce_dtype import with_reduce_dtype

if TYPE_CHECKING:
    from ..catalog.snapshot import Catalogue
    from ..launcher.skypilot.check import SkyCheck
    from ..planner.goodput.own_stops import OwnStops
    from ..planner.predict.measured.known_runs import KnownRuns
    from ..planner.predict.timeline import Span
    from ..planner.search.machines.offers import SpotPrices
    from ..planner.search.outcome import SearchOutcome
    from ..planner.validation.errors import Validation
    from ..planner.validation.folds import Protocol
    from ..profiles.doctor.checks import Diagnosis


def estimate(
    model: str | Path | ModelSpec | Inputs,
    question: Question | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    offers: Path | None = None,
    pricebook: Path | None = None,
    curves: Iterable[str | Path] = (),
    without_curves_of: Iterable[str] = (),
    timeout_s: float | None = None,
    on_progress: Progress | None = None,
    now: Callable[[], datetime] | None = None,
) -> Estimate:
    """Return ranked, priced plans for training a model; no plan is an answer too.

    Args:
        model: A model as for `profile`, or what `read_inputs` returned, with its own offers and
            curves.
        question: The work, machines, layouts and money; default: everything, no amount of work.
        params: Values for the functions of the file.
        offers: The user's own machines and prices.
        pricebook: The user's own terms: discounts, reservations, credits, tax.
        curves: Curve files of `calibrate`, each used for the accelerator it was measured on.
        without_curves_of: Accelerators predicted from their nearest relative, as if nobody had
            measured them.
        timeout_s: Longest time the file may take, seconds; default: the model's own, else 120.
        on_progress: Called with what is being done, how much of it is done, and of how much (None:
            not known): "comparing kinds of machine", 41, 146.
        now: The clock for `generated_at`; default: the current time in UTC.

    Raises:
        GpuplanError: The file, an option or the catalogue is at fault.
    """
    question = Question() if question is None else question
    refuse_other_type("question", question, Question)
    tell = on_progress or untold
    if not isinstance(model, Inputs):
        tell("tracing the model", None, None)
        model = read_inputs(
            model,
            params=params,
            precisions=question.choices.precisions,
            machine=question.machine,
            offers=offers,
            pricebook=pricebook,
            curves=curves,
            without_curves_of=without_curves_of,
            timeout_s=timeout_s,
        )
    from ..planner.search.search import search
    from .tables_on_disk import TablesOnDisk

    clock = now or utc_now
    started = clock()
    model, counted = counted_in_tokens(model, question.work)
    question = with_start(question, model.spec)
    question, reduced = with_reduce_dtype(question, model.spec)
    question, evaluated = with_eval_samples(question, model.spec)
    profile, measured = calibrated_profile(model)
    notes = (*counted, *reduced, *evaluated, *measured)
    found = search(
        question,
        profile,
        model.catalogue,
        known_runs(model),
        curve_choice=model.curve_choice,
        kept=TablesOnDisk(),
        own_stops=known_stops(),
        spot_prices=_spot_prices(question, model.catalogue),
        on_progress=tell,
    )
    answer = _answered(found, model, notes, started=started, ended=clock())
    if question.money.purchase != "all":
        return answer
    return answer.model_copy(update={"ways_to_pay": _ways_to_pay(answer, model.catalogue)})


def _answered(
    found: SearchOutcome,
    model: Inputs,
    notes: tuple[str, ...],
    *,
    started: datetime,
    ended: datetime,
) -> Estimate:
    """Return what was found with what it is about, at the user's own terms of the day."""
    from ..catalog.version import VERSION
    from ..planner.cost.own_terms import with_own_terms

    catalogue = model.catalogue
    return Estimate(
        gpuplan_version=VERSION,
        generated_at=ended.isoformat(timespec="seconds"),
        catalog=catalogue_facts(catalogue),
        workload=workload_facts(model.profile),
        question=found.question.model_copy(update={"param_rules": param_rules(model.spec)}),
        headlines=Headlines.model_validate(found.headlines),
        recommended=found.recommended,
        recommended_on_large_clouds=found.recommended_on_large_clouds,
        near_miss=found.near_miss,
        prices=found.prices,
        plans=tuple(with_own_terms(plan, catalogue.pricebook, at=started) for plan in found.plans),
        feasible=found.feasible,
        rejected=found.rejected,
        hidden=found.hidden,
        nearest_miss=found.nearest_miss,
        warnings=found.warnings,
        notes=(*notes, *found.notes),
    )


def _spot_prices(question: Question, catalogue: Catalogue) -> SpotPrices:
    """Return what the user's snapshots say of spot prices by day, where spot may be bought."""
    from ..catalog.prices.spot_history import spot_history

    if question.money.purchase not in ("spot", "any"):
        return {}
    sold = (one for one in catalogue.offers if one.market_spot_usd_per_hour is not None)
    return spot_history({(one.provider, one.region, one.instance_type) for one in sold})


def _ways_to_pay(answer: Estimate, catalogue: Catalogue) -> tuple[WaysToPay, ...]:
    """Return the ways of paying for the recommended machines; without work, the first plan's."""
    from ..planner.cost.ways import ways_to_pay

    named = (answer.recommended, answer.recommended_on_large_clouds)
    wanted = {one.id for one in named if one is not None}
    plans = [plan for plan in answer.plans if plan.id in wanted] or answer.plans[:1]
    found = (ways_to_pay(plan, catalogue) for plan in plans)
    return tuple(one for one in found if one is not None)


def known_runs(model: Inputs) -> KnownRuns:
    """Return what earlier runs of the model measured; nothing where the store cannot be read."""
    from ..launcher.store.estimates import Store, StoreError
    from ..launcher.store.measured_steps import known_runs as runs_of
    from ..launcher.store.measured_steps import workload_key

    if model.spec is None:
        return {}
    try:
        return runs_of(Store(), workload_key(model.spec))
    except StoreError:
        return {}


def known_stops() -> OwnStops:
    """Return what stopped the user's own launches; nothing where the store cannot be read."""
    from ..launcher.store.estimates import StoreError
    from ..launcher.store.launches import default_ledger
    from ..launcher.store.own_stops import own_stops
    from ..planner.goodput.own_stops import NO_OWN_STOPS

    try:
        return own_stops(default_ledger(utc_now).all())
    except StoreError:
        return NO_OWN_STOPS


def sources(
    plan: Plan, *, offers: Path | None = None, curves: Iterable[str | Path] = ()
) -> dict[str, str]:
    """Return what a plan's numbers rest on → where that is from, as far as it is known.

    Args:
        plan: The plan.
        offers: The user's own machines, if the plan may be on one of them.
        curves: Curve files that it was predicted with.
    """
    from ..catalog.snapshot import load_catalogue
    from ..planner.cost.start_up import startups
    from ..planner.plan.provenance import provenance
    from ..planner.software.kernel_levels import attention_of_torch

    catalogue = load_catalogue(offers)
    found = provenance(plan, catalogue, chosen_curves(curves))
    device = catalogue.accelerators.get(plan.offer.accelerator)
    older = attention_of_torch(device, plan.stack) if device is not None else None
    if older is not None:
        found["attention"] = older
    if plan.whole_job is None:
        return found
    is_own = plan.offer.is_own
    begun = [
        f"{one.name} {one.value_s / 60:g} min, {one.source}"
        for one in startups(is_own=is_own)
        if one.value_s
    ]
    if is_own:
        begun.append("no provisioning: the machine is your own")
    return {"start-up": "; ".join(begun), **found}


def timeline(inputs: Inputs, plan: Plan) -> list[Span]:
    """Return the predicted step of a plan as spans of time, for a trace viewer."""
    from ..planner.predict.timeline import timeline as spans

    accelerator = inputs.catalogue.accelerators[plan.offer.accelerator]
    return spans(inputs.profile, plan, accelerator, curve_choice=inputs.curve_choice)


def validate(
    records: Iterable[Path],
    *,
    hold_out: Protocol | None = None,
    offers: Path | None = None,
    curves: Iterable[str | Path] = (),
    without_curves_of: Iterable[str] = (),
) -> Validation:
    """Return predictions for recorded runs, with their errors; see `gpuplan validate`.

    Args:
        records: files of run records.
        hold_out: predict every run with constants fitted without its fold of configurations, its
            source or its accelerator; None: with the usual ones.
        offers: the user's own machines, where accelerators that the catalogue lacks are described.
        curves: curve files of `calibrate`, each used for the accelerator it was measured on.
        without_curves_of: accelerators predicted from their nearest relative, as if nobody had
            measured them.
    """
    from ..catalog.snapshot import load_catalogue
    from .validation import validate as judge_records

    choice = chosen_curves(curves, without_curves_of)
    catalogue = load_catalogue(offers)
    return judge_records(records, hold_out=hold_out, catalogue=catalogue, curve_choice=choice)


def check() -> SkyCheck:
    """Return which clouds machines can be rented from here; SkyPilot asks each of them."""
    from ..launcher.skypilot.check import check as ask

    return ask()


def doctor() -> Diagnosis:
    """Return what of this machine works with gpuplan, what does not, and how to mend it."""
    from ..profiles.doctor.checks import examine

    return examine()


def calibrated_profile(inputs: Inputs) -> tuple[Profile, tuple[str, ...]]:
    """Return the Profile ready to predict, with what its measurement says if it has one."""
    from ..profiles.measured import MeasuredProfile

    if not isinstance(inputs.profile, MeasuredProfile):
        return inputs.profile, ()
    from ..catalog.names import resolve_accelerator
    from ..planner.predict.measured.calibration import calibrated

    try:
        name = resolve_accelerator(inputs.profile.measured.device.name, catalogue=inputs.catalogue)
    except GpuplanError:
        name = ""
    accelerator = inputs.catalogue.accelerators.get(name)
    return calibrated(inputs.profile, accelerator, curve_choice=inputs.curve_choice)


def catalogue_facts(catalogue: Catalogue) -> CatalogueFacts:
    """Return what an answer says of the prices that it rests on."""
    return CatalogueFacts(
        snapshot_date=catalogue.snapshot_date,
        offers=len(catalogue.offers),
        source=catalogue.price_source,
    )


def workload_facts(traced: Profile) -> WorkloadFacts:
    """Return what an answer says of the model that it is about."""
    return WorkloadFacts(
        name=traced.name,
        parameters=traced.parameters,
        trainable_parameters=traced.trainable_parameters,
        flops_per_sample=traced.flops_per_sample,
        tokens_per_sample=traced.tokens_per_sample,
    )


def own_precision(traced: Profile) -> Precision:
    """Return the precision that a model's file sets, else fp32."""
    named: dict[str | None, Precision] = {precision: precision for precision in PRECISIONS}
    return named.get(traced.file_precision, "fp32")


def utc_now() -> datetime:
    """Return the time of an answer."""
    return datetime.now(UTC)
