"""What to change of a setting that somebody trains with today."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..catalog.errors import UsageError
from ..catalog.text.quantity import format_count
from ..planner.plan.answer.answer_parts import WorkloadFacts
from ..planner.plan.plan import Plan
from ..planner.plan.question import Machine, Question, Work
from ..planner.search.progress import Progress, untold
from ..profiles.user_model.lora_settings import LORA
from ..profiles.user_model.spec import ModelSpec
from .answers import (
    calibrated_profile,
    catalogue_facts,
    known_stops,
    utc_now,
    workload_facts,
)
from .models.config_facts import config_frozen
from .models.from_weights import with_start
from .models.inputs import Inputs, counted_in_tokens, read_inputs
from .models.reduce_dtype import with_reduce_dtype

if TYPE_CHECKING:
    from ..launcher.store.sourced_plan import SourcedPlan
    from ..planner.advise.answer import Advice


def advise(
    model: str | Path | ModelSpec | Inputs,
    today: Question | Plan | SourcedPlan,
    *,
    work: Work | None = None,
    others: Machine | None = None,
    params: Mapping[str, Any] | None = None,
    offers: Path | None = None,
    curves: Iterable[str | Path] = (),
    timeout_s: float | None = None,
    on_progress: Progress | None = None,
    now: Callable[[], datetime] | None = None,
) -> Advice:
    """Return what to change of today's setting: one thing at a time, planned anew, best first.

    Args:
        model: A model as for `profile`, or what `read_inputs` returned for any precision.
        today: A plan (of another model too: then a note says so where `kept_plan` returned it), or
            a question that names one machine (`Machine(accelerators=("H100:8",))`, or
            an instance type) and at most one of each choice; what it leaves out is taken from the
            file and said.
        work: How much is trained; default: what `today` says, if it does.
        others: Its providers, regions and jurisdictions limit the other machines that are looked
            at; default: those of the question, none with a plan.
        params: Values for the functions of the file.
        offers: The user's own machines and prices.
        curves: Curve files of `calibrate`, each used for the accelerator it was measured on.
        timeout_s: Longest time the file may take, seconds; default: the model's own, else 120.
        on_progress: As for `estimate`.
        now: The clock for `generated_at`; default: the current time in UTC.

    Raises:
        GpuplanError: The file, the setting or the catalogue is at fault.
    """
    from ..catalog.version import VERSION
    from ..planner.advise.advise import advise as answer
    from ..planner.advise.answer import Advice

    planned_for, question, others = _asked(today, work, others)
    if not isinstance(model, Inputs):
        model = read_inputs(
            model,
            params=params,
            machine=question.machine,
            offers=offers,
            curves=curves,
            timeout_s=timeout_s,
        )
    causal_mask = _causal_mask(model)
    model, counted = counted_in_tokens(model, question.work)
    question = with_start(question, model.spec)
    question, reduced = with_reduce_dtype(question, model.spec)
    profile, measured = calibrated_profile(model)
    facts = workload_facts(model.profile)
    notes = (*counted, *reduced, *measured, *_another_model(planned_for, facts))
    found = answer(
        question,
        profile,
        model.catalogue,
        others=others,
        frozen=config_frozen(model.spec, profile),
        causal_mask=causal_mask,
        curve_choice=model.curve_choice,
        own_stops=known_stops(),
        on_progress=on_progress or untold,
    )
    return Advice(
        gpuplan_version=VERSION,
        generated_at=(now or utc_now)().isoformat(timespec="seconds"),
        catalog=catalogue_facts(model.catalogue),
        workload=facts,
        headline=found.headline,
        elsewhere=found.elsewhere,
        today=found.today,
        today_fits=found.today_fits,
        assumed=found.assumed,
        changes=found.changes,
        together=found.together,
        notes=(*notes, *found.notes, *adapter_notes(model.spec, fits=found.today_fits)),
    )


def _asked(
    today: Question | Plan | SourcedPlan, work: Work | None, others: Machine | None
) -> tuple[WorkloadFacts | None, Question, Machine | None]:
    """Return the model that a kept plan was made for, today's setting, and other machines.

    Raises:
        UsageError: it is no setting.
    """
    from ..launcher.store.sourced_plan import SourcedPlan
    from ..planner.advise.today.todays_setting import question_of

    planned_for = today.workload if isinstance(today, SourcedPlan) else None
    setting = today.plan if isinstance(today, SourcedPlan) else today
    if isinstance(setting, Plan):
        return planned_for, question_of(setting, work), others or Machine()
    if not isinstance(setting, Question):
        raise UsageError(
            f"today={today!r} is no setting.",
            fix="give a plan of an estimate, or gpuplan.Question("
            'machine=gpuplan.Machine(accelerators=("H100:8",))).',
        )
    return None, setting if work is None else replace(setting, work=work), others


def _another_model(planned: WorkloadFacts | None, asked: WorkloadFacts) -> Iterator[str]:
    """Yield that a kept plan is of another model than the one it is asked about."""
    if planned is None or planned.parameters == asked.parameters:
        return
    sizes = (format_count(planned.parameters), format_count(asked.parameters))
    yield (
        f"the plan was made for {planned.name} ({sizes[0]} parameters): its machine, layout and"
        f" batch are taken for {asked.name} ({sizes[1]}) as they are"
    )


def adapter_notes(spec: ModelSpec | None, *, fits: bool) -> Iterator[str]:
    """Yield that adapters need less, where a model that can have them does not fit."""
    if not fits and spec is not None and spec.kind == "hf" and LORA not in spec.params:
        yield (
            "`--lora r=16` trains low-rank adapters alone: the base then has no gradients and no"
            " state of an optimizer"
        )


def _causal_mask(model: Inputs) -> str | None:
    """Return where a model file makes the causal mask of its attention; None: it does not show."""
    from ..profiles.causal_mask import causal_mask_line

    if model.spec is None or model.spec.kind != "file":
        return None
    return causal_mask_line(model.spec.path, model.profile.notes)
