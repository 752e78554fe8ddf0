"""`gpuplan report`: a project's money, from its file or from kept plans."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ...catalog.errors import UsageError
from ...planner.budget.project.experiment import Experiment
from ...planner.budget.project.months import Month
from ...planner.budget.project.project import PROJECT_FILE, Project
from ...planner.budget.report.report import BudgetReport
from ...planner.plan.plan import Plan
from ...planner.search.progress import Progress, untold
from ..answers import utc_now
from ..kept import kept_plan

if TYPE_CHECKING:
    from ...catalog.snapshot import Catalogue
    from ...planner.budget.ledger import Books
    from ...planner.budget.report.capacity_rows import CapacityOverTime
    from .runs import Answers


def read_project(path: str | Path) -> Project:
    """Return the project that a file states, with its defaults filled into every experiment.

    Args:
        path: The file, or the folder that holds a `gpuplan.yaml`.

    Raises:
        UsageError: The file is unreadable or malformed, or a value is wrong; with its line.
    """
    from .project_file import read_project as read

    return read(path)


def report(
    project: str | Path | Project,
    *,
    folder: Path | None = None,
    as_of: date | None = None,
    reprice: bool = False,
    on_progress: Progress | None = None,
    on_output: Callable[[str], None] | None = None,
    now: Callable[[], datetime] | None = None,
) -> BudgetReport:
    """Return what a project costs, by month and line, with ranges, limits and funding.

    Args:
        project: Its file `gpuplan.yaml`, a folder that holds one, or what `read_project` returned.
        folder: Where files that the project names are looked for; default: beside its file.
        as_of: Of a project file: the last report that was made up to this day, as it was then.
        reprice: Make it anew, and say what moved since the one of `as_of`, by default the last one.
        on_progress: Called with what is being done, how much of it is done, and of how much.
        on_output: Called with what the user's code printed.
        now: The clock; default: the current time in UTC.

    Raises:
        UsageError: The project file, or a model that it names, is at fault; with line or name.
        NoFeasiblePlanError: An experiment has no feasible plan; says which, and what is nearest.
    """
    path: Path | None = None
    earlier: BudgetReport | None = None
    file: str | None = None
    if not isinstance(project, Project):
        path = Path(project)
        path = path / PROJECT_FILE if path.is_dir() else path
        if as_of is not None and not reprice:
            return _as_it_was(path, as_of)
        # Looked for first: what is not kept is said before minutes of estimates.
        earlier = _as_it_was(path, as_of) if reprice else None
        folder, file = folder or path.parent, path.name
        project = read_project(path)
    made = report_with(
        project,
        folder=folder,
        file=file,
        on_progress=on_progress,
        on_output=on_output,
        now=now,
    )
    if path is not None:
        _keep(made, path)
    return made if earlier is None else _with_moved(made, earlier)


def report_with(
    project: Project,
    *,
    folder: Path | None = None,
    file: str | None = None,
    on_progress: Progress | None = None,
    on_output: Callable[[str], None] | None = None,
    now: Callable[[], datetime] | None = None,
    keeps: bool = True,
) -> BudgetReport:
    """Return the report of a project that is read already; as `report`.

    Args:
        project: What `read_project` returned.
        folder: Where files that it names are looked for.
        file: Name of its file.
        on_progress: Called with what is being done, how much of it is done, and of how much.
        on_output: Called with what the user's code printed.
        now: The clock; default: the current time in UTC.
        keeps: Whether its estimates are kept in the store.
    """
    from .runs import Answers

    clock = now or utc_now
    tell = on_progress or untold
    answers = Answers(project, folder or Path(), tell, on_output, clock().date(), keeps)
    return _report_of(project, answers, file, clock)


def kept_reports(project: str | Path | None = None) -> dict[str, BudgetReport]:
    """Return the newest kept report of every project, newest first, by a key of its file.

    Args:
        project: Only that of this file, or of the `gpuplan.yaml` in this folder; default: all.
    """
    from ...launcher.store.reports import key_of, newest_reports

    found = newest_reports()
    if project is None:
        return found
    path = Path(project)
    key = key_of(path / PROJECT_FILE if path.is_dir() else path)
    return {key: found[key]} if key in found else {}


def _with_moved(made: BudgetReport, earlier: BudgetReport) -> BudgetReport:
    """Return a report that says what moved since an earlier one, behind its first sentence."""
    from ...planner.budget.difference.difference import difference

    day = f"the report of {earlier.generated_at[:10]}"
    moved = difference(earlier, made, names=(day, "this report"))
    first, *others = made.summary
    summary = (first, f"Since {day}: {moved.headline}", *others)
    return made.model_copy(update={"moved": moved, "summary": summary})


def _as_it_was(path: Path, as_of: date | None) -> BudgetReport:
    from ...launcher.store.reports import kept_days, kept_report

    found = kept_report(path, as_of or date.max)
    if found is None:
        days = kept_days(path)
        known = f"the first one kept is of {days[-1]}" if days else "none of it is kept"
        until = f" up to {as_of}" if as_of else ""
        raise UsageError(
            f"No report of {path} was made{until}: {known}.",
            fix="every `gpuplan report FILE` is kept; give a later day, or leave both options out.",
        )
    return found


def _keep(made: BudgetReport, path: Path) -> None:
    from ...launcher.store.reports import keep_report

    with contextlib.suppress(OSError):  # A report on a full disk is still a report.
        keep_report(made, path)


def report_of_plans(
    plans: Sequence[str], *, name: str = "plans", now: Callable[[], datetime] | None = None
) -> BudgetReport:
    """Return the report of kept plans: one run of each, one after another from this month on.

    Args:
        plans: Ids of kept plans, or their beginnings.
        name: What the report is called.
        now: The clock; default: the current time in UTC.

    Raises:
        UsageError: No kept plan or several begin with one of the ids, or two are of one plan.
    """
    clock = now or utc_now
    found = [kept_plan(one).plan for one in plans]
    _refuse_twice(found)
    names = tuple(plan.id for plan in found)
    project = Project(
        name=name,
        start=Month.of(clock().date()),
        months=_months_of(found),
        experiments={
            title: Experiment(plan=plan.id, after=names[:i][-1:])
            for i, (title, plan) in enumerate(zip(names, found, strict=True))
        },
    )
    from .runs import Answers

    answers = Answers(project, Path(), untold, None, clock().date())
    return _report_of(project, answers, None, clock, is_of_plans=True)


def _refuse_twice(plans: Sequence[Plan]) -> None:
    ids = [plan.id for plan in plans]
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice is not None:
        raise UsageError(
            f"Plan {twice} is given twice, and a report is of one run of each.",
            fix="give every id once; a project file says how many runs a plan has:"
            f" `plan: {twice}` with `runs: {{seeds: 2}}`.",
        )


def _months_of(plans: Sequence[Plan]) -> int:
    """Return the months that plans take one after another, up to the end of the last."""
    hours = sum(0.0 if plan.job is None else plan.job.hours for plan in plans)
    return 1 + int(hours // (28 * 24))


def _report_of(
    project: Project,
    answers: Answers,
    file: str | None,
    clock: Callable[[], datetime],
    *,
    is_of_plans: bool = False,
) -> BudgetReport:
    from ...catalog.version import VERSION
    from ...planner.budget.ledger import Books
    from ...planner.budget.report.build import Made, build_report, with_capacity
    from ...planner.cost.ways import ways_to_pay
    from .machines import idle_price
    from .providers import with_known_providers
    from .spending import with_launches

    catalogue = answers.catalogue
    project = with_known_providers(_with_owner(project), catalogue)
    answers.project = project
    planned = tuple(answers.planned())
    books = Books(
        project=project,
        planned=planned,
        idle=tuple(idle_price(one, catalogue) for one in project.idle),
        tax_percent=catalogue.pricebook.tax_percent,
        credits=catalogue.pricebook.credits,
    )
    # Where it contradicts itself, the file is refused before the longer part of the work.
    capacity = None if is_of_plans else _capacity_of(books, catalogue)
    made = Made(
        gpuplan_version=VERSION,
        generated_at=clock().isoformat(timespec="seconds"),
        today=clock().date(),
        snapshot_date=catalogue.snapshot_date,
        file=file,
    )
    found = build_report(books, made, ways_of=lambda plan: ways_to_pay(plan, catalogue))
    return with_launches(
        found if capacity is None else with_capacity(found, capacity),
        clock(),
        project=None if is_of_plans else project.name,
        file=None if file is None else answers.folder / file,
    )


def _capacity_of(books: Books, catalogue: Catalogue) -> CapacityOverTime | None:
    """Return the project's accelerators over time; None of more sets of runs than can be drawn."""
    from ...planner.budget.schedule import refuse_too_late
    from ...planner.capacity.build import MOST_JOBS
    from .project_capacity import capacity_of, own_accelerators

    spans = books.spans()
    refuse_too_late(spans)
    there = books.project.have or own_accelerators(spans, catalogue)
    if len(spans) > MOST_JOBS and not there:
        return None
    return capacity_of(books.project, spans, catalogue)


def _with_owner(project: Project) -> Project:
    """Return the project with its owner for every experiment that names none."""
    experiments = {
        name: one if one.owner else one.model_copy(update={"owner": project.owner})
        for name, one in project.experiments.items()
    }
    return project.model_copy(update={"experiments": experiments})
