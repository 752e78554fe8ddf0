"""Every experiment of a project → its runs with what they take and cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...catalog.errors import NoFeasiblePlanError, UsageError
from ...planner.budget.planned import PlannedRuns, run_cost_of
from ...planner.budget.project.experiment import Experiment
from ...planner.budget.project.project import Project
from ...planner.budget.report.build import OPTIONS
from ...planner.budget.report.rows import FrontPoint, OptionName
from ...planner.plan.answer.asked_words import amount_items
from ...planner.plan.answer.estimate import Estimate
from ...planner.plan.plan import Plan
from ...planner.plan.question import Money, Question
from ...planner.search.answer.near_miss import obstacles
from ...planner.search.progress import Progress
from ..answers import estimate
from ..kept import keep
from ..models.inputs import Inputs, read_inputs
from .grid import Params, model_path, params_of_model, rungs, variants
from .kept_answers import KeptAnswers
from .machines import machine_cost
from .plan_rows import kept_of
from .questions import question_of

if TYPE_CHECKING:
    from ...catalog.snapshot import Catalogue
    from ...launcher.store.sourced_plan import SourcedPlan

FRONT_POINTS = 12
"""Plans of an experiment's cost-time front that a report shows."""


@dataclass
class Answers:
    """Answers the questions of a project; models and questions that are the same are read once."""

    project: Project
    folder: Path
    tell: Progress
    on_output: Callable[[str], None] | None
    today: date
    keeps: bool = True
    """Whether the estimates are kept in the store, so that their plans can be launched."""
    _inputs: dict[str, Inputs] = field(default_factory=dict)
    _estimates: dict[str, Estimate] = field(default_factory=dict)
    _catalogue: Catalogue | None = None

    def __post_init__(self) -> None:
        self._known = KeptAnswers(self.today)

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue at the project's own terms."""
        from ...catalog.snapshot import load_catalogue

        if self._catalogue is None:
            self._catalogue = load_catalogue(self._file("offers"), self._file("pricebook"))
        return self._catalogue

    def planned(self) -> Iterator[PlannedRuns]:
        """Yield the runs of every experiment with what they cost."""
        count = len(self.project.experiments)
        for i, (name, spec) in enumerate(self.project.experiments.items()):
            self.tell(f"planning {name}", i, count)
            try:
                yield from self._planned_of(name, spec)
            except NoFeasiblePlanError:
                raise
            except UsageError as error:
                raise UsageError(f"{name}: {error.message}", fix=error.fix) from error

    def _planned_of(self, name: str, spec: Experiment) -> Iterator[PlannedRuns]:
        if spec.model is None:
            kept = None if spec.hours is not None else kept_of(spec, self.catalogue)
            cost = machine_cost(spec, self.catalogue) if kept is None else run_cost_of(kept.plan)
            yield PlannedRuns(
                name=name,
                experiment=name,
                spec=spec,
                runs=spec.runs.count,
                model=None,
                work=None if spec.hours is None else f"{spec.hours:g} h",
                options=dict.fromkeys(OPTIONS, cost),
                workload=None if kept is None else _workload_of(kept),
            )
            return
        for title, params, amount in rungs(name, spec):
            for suffix, more, settings in variants(spec, params_of_model(spec.model, self.folder)):
                yield self._of_model(
                    title + suffix,
                    name,
                    spec,
                    {**spec.params, **params, **more},
                    amount,
                    settings * spec.runs.seeds,
                )

    def _of_model(
        self,
        title: str,
        name: str,
        spec: Experiment,
        params: Params,
        amount: Mapping[str, Any],
        runs: int,
    ) -> PlannedRuns:
        from ...launcher.store.measured_steps import workload_key

        assert spec.model is not None
        question = question_of(spec, amount)
        read = self._read(spec.model, params, question)
        answer = self._estimate(read, question)
        options = _options(answer, title, spec, question.money)
        asked = answer.question
        return PlannedRuns(
            name=title,
            experiment=name,
            spec=spec,
            runs=runs,
            model=answer.workload.name,
            work=None if asked is None else ", ".join(amount_items(asked)),
            options={one: run_cost_of(plan) for one, plan in options.items()},
            front=tuple(_front_points(answer)),
            flops_per_sample=answer.workload.flops_per_sample,
            workload=None if read.spec is None else workload_key(read.spec),
            notes=answer.warnings,
        )

    def _read(self, model: str, params: Params, question: Question) -> Inputs:
        precisions = question.choices.precisions
        key = repr((model, sorted(params.items()), precisions))
        if key not in self._inputs:
            self._inputs[key] = read_inputs(
                model_path(model, self.folder),
                params=params,
                precisions=precisions,
                machine=question.machine,
                offers=self._file("offers"),
                pricebook=self._file("pricebook"),
                on_output=self.on_output,
            )
        return self._inputs[key]

    def _estimate(self, read: Inputs, question: Question) -> Estimate:
        key = f"{id(read)} {question!r}"
        if key not in self._estimates:
            known = self._known.get(read, question)
            self._estimates[key] = known or self._searched(read, question)
        return self._estimates[key]

    def _searched(self, read: Inputs, question: Question) -> Estimate:
        answer = estimate(read, question)
        if not self.keeps:
            return answer
        keep(answer, inputs=read, question=question, folder=self.folder.absolute())
        if answer.plans:
            shown = [*_by_option(answer, answer.best or answer.plans[0]).values(), *_front(answer)]
            self._known.put(read, question, answer, {plan.id for plan in shown})
        return answer

    def _file(self, name: str) -> Path | None:
        given = getattr(self.project, name)
        return None if given is None else self.folder / given


def _workload_of(kept: SourcedPlan) -> str | None:
    """Return what tells the model of a kept plan from others, as its files were then."""
    from ...launcher.store.measured_steps import workload_key

    origin = kept.origin
    return None if origin is None else workload_key(origin.spec, files=origin.files_hash)


def _options(answer: Estimate, name: str, spec: Experiment, money: Money) -> dict[OptionName, Plan]:
    """Return the cheapest, the recommended and the fastest plan of an answer.

    Where none is recommended the first is taken if the project names its accelerator or instance.

    Raises:
        NoFeasiblePlanError: There is none, or none that a person would take unasked.
    """
    if not answer.plans:
        raise NoFeasiblePlanError(
            f"{name}: no plan is feasible. {answer.nearest_miss or ''}".strip(),
            fix="see why with `gpuplan estimate` and the same options.",
        )
    if answer.best is not None or spec.accelerator or spec.instance:
        return _by_option(answer, answer.best or answer.plans[0])
    first = answer.plans[0]
    why = ", ".join(one.text for one in obstacles(first, money)) or "is not recommended"
    raise NoFeasiblePlanError(
        f"{name}: within its limits there is only {first.place}, and it {why}."
        f" {answer.nearest_miss or ''}".strip(),
        fix=f"raise its budget or its deadline, or name `accelerator: {first.offer.accelerator}`.",
    )


def _by_option(answer: Estimate, usual: Plan) -> dict[OptionName, Plan]:
    by_id = {plan.id: plan for plan in answer.plans}
    return {
        "cheap": by_id.get(answer.headlines.cheapest or "", usual),
        "normal": usual,
        "fast": by_id.get(answer.headlines.fastest or "", usual),
    }


def _front(answer: Estimate) -> list[Plan]:
    """Return the plans of which none is both slower and dearer than another, cheapest first.

    Plans that need a port are none of the three options, and where there are others none of these.
    """
    plans = [plan for plan in answer.plans if not plan.stands_apart] or answer.plans
    known = [
        (usd, job.hours, plan.id, plan)
        for plan in plans
        if (job := plan.whole_job) is not None and (usd := plan.likely_usd) is not None
    ]
    found: list[Plan] = []
    fastest = float("inf")
    for _, hours, _, plan in sorted(known, key=lambda one: one[:3]):
        if hours < fastest:
            fastest = hours
            found.append(plan)
    return found[:FRONT_POINTS]


def _front_points(answer: Estimate) -> Iterator[FrontPoint]:
    for plan in _front(answer):
        job = plan.whole_job
        if job is not None and job.usd is not None:
            yield FrontPoint(
                hours=job.hours,
                usd=job.usd + job.beside_usd,
                rent=plan.place,
                lower_bound=plan.is_lower_bound,
            )
