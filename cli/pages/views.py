"""What the pages about estimates, plans and reports show."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import datetime

from markupsafe import Markup

from ... import api
from ...catalog.errors import UsageError
from ...catalog.text.money import format_money
from ...catalog.text.quantity import UNKNOWN, format_bytes, format_gib, format_seconds
from ...planner.budget.report.report import BudgetReport
from ...planner.plan.answer.estimate import Estimate
from ...planner.plan.plan import Plan
from ..render.plans.estimate import meanings
from ..render.plans.explain import MEMORY_PARTS, STEP_PARTS, parts_of, setup_items
from ..render.plans.plan_table import marks_of
from ..render.report.figures import about_usd, least, usd
from ..render.report.words import standing
from ..render.text.money_items import amount_text, data_items, paid_lines
from ..render.text.notes import joined_notes
from ..render.text.wording import chance_text, describe_cost
from .drawing import Bar, bars, part_bars
from .front_chart import Point, cost_time_front
from .page import Amount, Cell, Figure, Lines, Link, Rows, Tile, Tiles, View

LISTED = 20
"""Estimates that the pages show, the newest; `gpuplan plans` lists all."""
PLAN_HEADINGS = (
    *("plan", "rent", "on", "time", "cost", "rate", ">runs out of memory", "remarks", "layout"),
)
LEGEND = (
    ("c2", "recommended"),
    ("c1", "none is both cheaper and faster, ports left out"),
    ("c8", "other plans"),
    ("range", "80 % interval"),
)
_PLAN_ID = re.compile(r"[0-9a-f]{10}")


def overview() -> View:
    """Return the newest estimates and the newest report of each project."""
    unread: list[str] = []
    estimates = api.kept_estimates(limit=LISTED, on_note=unread.append)
    return View(
        title="What is kept on this machine",
        subtitle="Read-only: the commands at the end of each page do the rest, in a terminal.",
        commands=("gpuplan plans", "gpuplan report"),
        blocks=(
            Rows(
                caption="Projects, the newest report of each",
                headings=("project", "made", ">planned", ">80 % range", ">budget", "limits"),
                rows=tuple(_report_row(*one) for one in api.kept_reports().items()),
                empty="No report is kept yet. Next: gpuplan init --project, then gpuplan report",
            ),
            Rows(
                caption=f"Newest estimates, at most {LISTED}",
                headings=("asked", "model and work", "recommended", "time", "cost"),
                rows=tuple(_estimate_row(one) for one in estimates),
                empty="No estimate is kept yet. Next: gpuplan estimate model.py --tokens 10B",
            ),
            Lines(caption="Left out", lines=tuple(unread)),
        ),
    )


def _report_row(key: str, report: BudgetReport) -> tuple[Cell, ...]:
    total = report.total
    return (
        Link(report.project.name, f"/project/{key}"),
        _time(report.generated_at),
        Amount(usd(least(total.usd, report.is_lower_bound)), total.usd),
        Amount(f"{about_usd(total.p10_usd)} to {about_usd(total.p90_usd)}", total.p90_usd),
        Amount(usd(least(report.budget_usd, report.is_lower_bound)), report.budget_usd),
        standing(report),
    )


def _estimate_row(answer: Estimate) -> tuple[Cell, ...]:
    best = answer.best
    return (
        Link(_time(answer.generated_at), f"/estimate/{key_of(answer)}"),
        " · ".join(answer.asked_text),
        "none" if best is None else f"{best.place} ({best.devices})",
        "–" if best is None else _hours(best),
        "–" if best is None else _cost(best),
    )


def key_of(answer: Estimate) -> str:
    """Return what an estimate is called in an address: a hash of when and what was answered."""
    told = [answer.generated_at, *answer.asked_text, *(plan.id for plan in answer.plans)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]


def estimate(key: str) -> View:
    """Return the plans of one of the newest estimates, as a front and as a table.

    Raises:
        UsageError: It is not among the newest.
    """
    kept = api.kept_estimates(limit=LISTED)
    answer = next((one for one in kept if key_of(one) == key), None)
    if answer is None:
        raise UsageError(
            f"This estimate is not among the newest {LISTED}, or was made again since.",
            fix="go back to the overview; `gpuplan plans` lists every estimate.",
        )
    return View(
        title=" · ".join(answer.asked_text[:2]),
        subtitle=" · ".join(
            [*answer.asked_text[2:], *answer.limits_text, f"asked {_time(answer.generated_at)}"]
        ),
        commands=(f"gpuplan plans --top {max(1, len(answer.plans))}",),
        note=answer.near_miss_text,
        blocks=(
            *_recommended(answer),
            Figure(
                caption="Cost against time from request to end, both logarithmic",
                svg=cost_time_front(list(_points(answer))),
                legend=LEGEND,
            ),
            Rows(
                caption="Plans in order of rank",
                headings=PLAN_HEADINGS,
                rows=tuple(_plan_row(plan) for plan in answer.plans),
                empty=f"No plan is feasible. {answer.nearest_miss or ''}",
            ),
            Lines(caption="Remarks", lines=tuple(meanings(answer.plans))),
            Lines(caption="Notes", lines=tuple(joined_notes(answer.notes))),
        ),
    )


def _recommended(answer: Estimate) -> Iterator[Tiles]:
    """Yield what is read first: the plan to rent, and why."""
    best = answer.best
    if best is None or answer.recommended is None:
        return
    # As in a terminal, whose likely cost is rounded with its interval.
    _, _, likely = describe_cost(best).partition(", ")
    yield Tiles(
        tiles=(
            Tile("Recommended", best.devices, f"{best.place}: {answer.recommended.reason}"),
            Tile("From request to end", best.hours_text, "80 % interval"),
            Tile("Cost", best.cost_text, likely),
        )
    )


def _points(answer: Estimate) -> Iterator[Point]:
    """Yield the plans whose time and cost are known."""
    chosen = None if answer.recommended is None else answer.recommended.id
    for plan in answer.plans:
        job, (low, likely, high) = plan.job, plan.usd_ends
        if job is None or low is None or likely is None or high is None:
            continue
        yield Point(
            name=f"{plan.place} ({plan.devices}): {plan.hours_text}, {plan.cost_text}",
            link=f"/plan/{plan.id}",
            hours=(job.hours_low, job.hours, job.hours_high),
            usd=(low, likely, high),
            is_recommended=plan.id == chosen,
            runs_as_it_is=not plan.needs_port,
        )


def _hours(plan: Plan) -> Amount:
    return Amount(plan.hours_text, None if plan.job is None else plan.job.hours)


def _cost(plan: Plan) -> Amount:
    return Amount(plan.cost_text, plan.likely_usd)


def _plan_row(plan: Plan) -> tuple[Cell, ...]:
    return (
        Link(plan.id, f"/plan/{plan.id}"),
        plan.place,
        plan.devices,
        _hours(plan),
        _cost(plan),
        Amount(plan.rate_text, plan.samples_per_s),
        Amount(UNKNOWN if plan.p_oom is None else chance_text(plan.p_oom), plan.p_oom),
        ", ".join(marks_of(plan)),
        plan.string,
    )


def plan(plan_id: str, launches: Callable[[str], Rows]) -> View:
    """Return one kept plan: its memory, its step, its cost lines, its launches and its sources.

    Args:
        plan_id: All ten digits of it.
        launches: Returns the launches of a plan.

    Raises:
        UsageError: No kept plan has this id.
    """
    if not _PLAN_ID.fullmatch(plan_id):
        raise UsageError(
            "A plan's id is ten hexadecimal digits.", fix="follow a link of an estimate."
        )
    kept = api.kept_plan(plan_id)
    one = kept.plan
    sources = [f"{what}: {where}" for what, where in api.sources(one).items()]
    return View(
        title=f"Plan {one.id}: {one.place} ({one.devices})",
        subtitle=" · ".join([*setup_items(one, kept.estimate), one.hours_text, one.cost_text]),
        commands=(f"gpuplan show {one.id}", _start(one)),
        blocks=(
            Figure(caption=_memory_caption(one), svg=_memory(one), is_wide=False),
            Figure(caption=_step_caption(one), svg=_step(one), is_wide=False),
            Rows(
                caption="What the dollars are made of",
                headings=("line", ">quantity", "unit", ">US dollars"),
                rows=tuple(
                    (line.name, amount_text(line.quantity), line.unit, format_money(line.usd))
                    for line in paid_lines(one)
                ),
                empty="Not known: no amount of work was given, or no price is known.",
            ),
            Lines(caption="Beside the machines", lines=tuple(data_items(one))),
            launches(one.id),
            Lines(caption="Notes", lines=one.notes),
            Lines(caption="Sources", lines=tuple(sources)),
        ),
    )


def _memory_caption(one: Plan) -> str:
    peak = one.peak_memory_bytes
    return (
        f"Memory of the fullest device: {format_gib(peak.value)} of {format_gib(peak.capacity)},"
        f" {format_gib(peak.low)} to {format_gib(peak.high)} ({peak.basis}, 80 % interval)"
    )


def _memory(one: Plan) -> Markup | None:
    peak = one.peak_memory_bytes
    total = Bar(
        name="peak",
        size=peak.value,
        text=format_bytes(peak.value),
        low=peak.low,
        high=peak.high,
        kind="total",
    )
    parts = parts_of(one.memory_breakdown_bytes, MEMORY_PARTS)
    rows = part_bars(parts, total, scale_text=format_bytes)
    free = peak.capacity - peak.value
    if free > 0:
        text = format_bytes(free)
        rows.append(Bar(name="free", size=free, text=text, kind="free", begin=peak.value))
    return bars(rows, label=_memory_caption(one), most=peak.capacity)


def _step_caption(one: Plan) -> str:
    time = one.step_time_s
    return (
        f"Time of one optimizer step: {format_seconds(time.value)}, {format_seconds(time.low)} to"
        f" {format_seconds(time.high)} ({time.basis}, 80 % interval)"
    )


def _step(one: Plan) -> Markup | None:
    time = one.step_time_s
    total = Bar(
        name="step",
        size=time.value,
        text=format_seconds(time.value),
        low=time.low,
        high=time.high,
        kind="total",
    )
    parts = parts_of(one.breakdown_s, STEP_PARTS)
    return bars(part_bars(parts, total, scale_text=format_seconds), label=_step_caption(one))


def report(key: str) -> BudgetReport:
    """Return the newest kept report of a project.

    Raises:
        UsageError: None of that key is kept.
    """
    found = api.kept_reports().get(key)
    if found is None:
        raise UsageError(
            "No report of this project is kept.", fix="make one with `gpuplan report FILE`."
        )
    return found


def missing_report(project: str) -> View:
    """Return what to do for a project of which no report is kept."""
    return View(
        title="No report of this project is kept yet",
        subtitle="A report plans every experiment, which takes a while: make it in a terminal.",
        commands=(f"gpuplan report {shlex.quote(project)}",),
    )


def _time(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M}"


def _start(plan: Plan) -> str:
    """Return how to start a plan: SkyPilot rents no machine of one's own."""
    if plan.offer.is_own:
        return f"gpuplan export {plan.id} --to torchrun"
    return f"gpuplan launch {plan.id} --dryrun"
