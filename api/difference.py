"""`gpuplan diff`: what changed between two plans, reports or projects, and why."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ..catalog.errors import UsageError
from ..planner.budget.difference.causes import Difference
from ..planner.budget.difference.difference import difference
from ..planner.budget.project.project import PROJECT_FILE
from ..planner.budget.report.report import REPORT_SCHEMA_VERSION, BudgetReport
from ..planner.search.progress import Progress, untold
from .answers import utc_now
from .kept import kept_plan
from .projects.reports import read_project, report_of_plans, report_with

if TYPE_CHECKING:
    from ..launcher.store.sourced_plan import SourcedPlan

LARGEST_FILE_BYTES = 200 * 10**6
"""Of a report: one of 500 experiments over 120 months has some 50 MB."""


def diff(
    before: str | Path | BudgetReport,
    after: str | Path | BudgetReport | None = None,
    *,
    git: str | None = None,
    on_progress: Progress | None = None,
    on_output: Callable[[str], None] | None = None,
    now: Callable[[], datetime] | None = None,
) -> Difference:
    """Return what changed from one budget to another, and why, to the cent.

    Args:
        before: Id of a kept plan, a report JSON file, a project file or its folder (reported now),
            or a report.
        after: The same; not given with `git`.
        git: A revision: `before` is then a project file, and what it says now is compared with what
            it and the files beside it said then, both at today's prices.
        on_progress: Called with what is being done, how much of it is done, and of how much.
        on_output: Called with what the user's code printed.
        now: The clock; default: the current time in UTC.

    Raises:
        UsageError: One of them is not to be found or read, or a project is at fault.
        NoFeasiblePlanError: An experiment has no feasible plan.
    """
    asked = _Asked(on_progress or untold, on_output, now or utc_now)
    if git is not None:
        if after is not None or isinstance(before, BudgetReport) or not _is_project(str(before)):
            raise UsageError(
                "A git revision is of one project file.",
                fix=f"give one: `gpuplan diff {PROJECT_FILE} --git {git}`.",
            )
        return _since_revision(_project_path(str(before)), git, asked)
    if after is None:
        raise UsageError(
            "There is one thing to compare, and nothing to compare it with.",
            fix="give two of them, or a project file and --git REV.",
        )
    first, last = (_side(one, asked) for one in (before, after))
    if first.plan is not None and last.plan is not None:
        name, other = _common_name(first.plan, last.plan), _other_model(first.plan, last.plan)
        first, last = _renamed(first, name), _renamed(last, name)
        found = difference(first.report, last.report, names=(first.name, last.name))
        return found.model_copy(update={"headline": f"{found.headline}{other}"})
    return difference(first.report, last.report, names=(first.name, last.name))


@dataclass(frozen=True)
class _Asked:
    tell: Progress
    on_output: Callable[[str], None] | None
    clock: Callable[[], datetime]


@dataclass(frozen=True, kw_only=True)
class _Side:
    name: str
    report: BudgetReport
    plan: SourcedPlan | None = None


def _since_revision(path: Path, revision: str, asked: _Asked) -> Difference:
    """Return what changed of a project file since a revision."""
    from .projects.git_tree import files_at

    with ExitStack() as kept:
        then = kept.enter_context(files_at(path, revision))
        first = _reported(then, asked, keeps=False)
    last = _reported(path, asked)
    return difference(first, last, names=(f"{path.name} at {revision}", f"{path.name} now"))


def _side(given: str | Path | BudgetReport, asked: _Asked) -> _Side:
    """Return the report that was named, or made of what was named."""
    if isinstance(given, BudgetReport):
        return _Side(name=given.project.name, report=given)
    text = str(given)
    if _is_project(text):
        return _Side(name=text, report=_reported(_project_path(text), asked))
    if Path(text).suffix.lower() == ".json" or Path(text).is_file():
        return _Side(name=text, report=read_report(Path(text)))
    plan = kept_plan(text)
    made = report_of_plans([text], now=asked.clock)
    return _Side(name=f"plan {plan.plan.id}", report=made, plan=plan)


def read_report(path: Path) -> BudgetReport:
    """Return a report that `gpuplan report -o report.json` wrote.

    Raises:
        UsageError: It is unreadable, no report, or of a later major version.
    """
    fix = "write one with `gpuplan report -o report.json`."
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise UsageError(f"{path} is larger than 200 MB, and so no report.", fix=fix)
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}.", fix=fix) from None
    try:
        found = BudgetReport.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        said = f"{where}: {fault['msg']}" if where else fault["msg"]
        raise UsageError(f"{path} is no report of a project: {said}.", fix=fix) from None
    if found.schema_version.split(".")[0] != REPORT_SCHEMA_VERSION.split(".")[0]:
        raise UsageError(
            f"{path} is a report of version {found.schema_version}; this gpuplan reads"
            f" {REPORT_SCHEMA_VERSION}.",
            fix="write it again with this version of gpuplan.",
        )
    return found


def _reported(path: Path, asked: _Asked, *, keeps: bool = True) -> BudgetReport:
    return report_with(
        read_project(path),
        folder=path.parent,
        file=path.name,
        on_progress=asked.tell,
        on_output=asked.on_output,
        now=asked.clock,
        keeps=keeps,
    )


def _is_project(text: str) -> bool:
    path = Path(text)
    return path.is_dir() or path.suffix.lower() in (".yaml", ".yml")


def _project_path(text: str) -> Path:
    path = Path(text)
    return path / PROJECT_FILE if path.is_dir() else path


def _other_model(first: SourcedPlan, last: SourcedPlan) -> str:
    """Return that two plans are of different models, as a sentence after another; "" if not."""
    models = (first.workload, last.workload)
    names = [None if one is None else f"{one.name}, {one.parameters_text}" for one in models]
    if None in names or names[0] == names[1]:
        return ""
    return f" They train different models: {names[0]}, and then {names[1]}."


def _common_name(first: SourcedPlan, last: SourcedPlan) -> str:
    """Return what two plans are called together: by their model, or by both."""
    names = {None if one.workload is None else one.workload.name: None for one in (first, last)}
    return "the run" if None in names else " → ".join(map(str, names))


def _renamed(side: _Side, name: str) -> _Side:
    """Return the report of one plan with its experiment under another name."""
    assert side.plan is not None
    workload = side.plan.workload
    facts = {
        "name": name,
        "model": None if workload is None else workload.name,
        "flops_per_sample": None if workload is None else workload.flops_per_sample,
    }
    report = side.report
    renamed = {
        "experiments": tuple(one.model_copy(update=facts) for one in report.experiments),
        "entries": tuple(one.model_copy(update={"experiment": name}) for one in report.entries),
        "unpriced": (name,) if report.unpriced else (),
        "in_part": (name,) if report.in_part else (),
        "open_lines": tuple(
            one.model_copy(update={"experiment": name}) for one in report.open_lines
        ),
    }
    return replace(side, report=report.model_copy(update=renamed))
