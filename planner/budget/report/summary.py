"""A report in words: its first page, what it rests on, what may go wrong, what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....catalog.text.amounts import format_given_share
from ....catalog.text.quantity import format_duration
from ..ledger import Books
from ..money import dollars
from ..project.months import Month
from ..project.project import Project
from ..schedule import month_at
from .funding_words import paid
from .limit_rows import LimitCheck
from .report import BudgetReport
from .rows import ExperimentRow, MoneyRange, Sensitivity

WHAT_IF = "(what if)"
"""Ends the name of an assumption that no source gives a range for."""


def range_text(of: MoneyRange) -> str:
    """Return "$1,200 and $1,900", behind "between"."""
    return f"{dollars(of.p10_usd)} and {dollars(of.p90_usd)}"


def summary(books: Books, report: BudgetReport) -> tuple[str, ...]:
    """Return the first page in words, the most important sentence first.

    Args:
        books: the project, and what its runs cost.
        report: its figures; the first page that it has is not read.
    """
    return (
        _cost(books.project, report),
        *report.beyond,
        *_overturned(report.sensitivities, is_least=report.is_lower_bound),
        *_bought(report.experiments),
        *paid(
            books.project,
            report.funding,
            report.unfunded_usd,
            report.contingency_usd,
            is_whole=not report.is_lower_bound,
        ),
        *_over(report.limits),
        *_when(books, report.experiments),
        *(one.text for one in report.options if not one.is_planned),
    )


def _cost(project: Project, report: BudgetReport) -> str:
    """Return what the project takes, how sure that is, and what to ask for."""
    total = report.total
    one = project.start == project.end
    when = f"in {project.start}" if one else f"from {project.start} to {project.end}"
    least = "at least " if report.is_lower_bound else ""
    first = f"{project.name} takes {least}{dollars(total.usd)} {when}"
    if total.p10_usd == total.p90_usd:
        first += "; nothing of it is a prediction."
    else:
        chance = f"with a chance of 80 % between {range_text(total)}"
        first += f"; what of it has a price, {chance}." if least else f"; {chance}."
    if report.contingency_usd:
        ask = dollars(report.budget_usd)
        part = format_given_share(project.contingency)
        first += f" With {part} for what nobody planned, ask for {least}{ask}."
    elif total.p10_usd != total.p90_usd:
        ask = f"ask for {least}{dollars(total.p90_usd)}"
        first += f" To be 90 % sure that it is enough, {ask}."
    return first


def _overturned(found: Sequence[Sensitivity], *, is_least: bool) -> Iterator[str]:
    one = next((one for one in found if not one.name.endswith(WHAT_IF)), None)
    if one is not None:
        what = "Of what has a price, what" if is_least else "What"
        yield (
            f"{what} is least sure is {one.name}: {one.low}, {dollars(one.low_usd)};"
            f" {one.high}, {dollars(one.high_usd)}."
        )


def _bought(rows: Sequence[ExperimentRow]) -> Iterator[str]:
    runs = sum(row.runs for row in rows)
    hours = sum(row.accelerator_hours for row in rows)
    if not runs:
        return
    kinds = sorted({row.accelerator for row in rows})
    named = kinds[0] if len(kinds) == 1 else f"{len(kinds)} kinds of accelerator"
    dearest = max(rows, key=lambda row: row.total.usd)
    least = "at least " if dearest.total.lower_bound else ""
    each = "" if dearest.runs == 1 else " each"
    trains = f", {dearest.work}{each}" if dearest.work else ""
    yield (
        f"It buys {runs:,} run{'' if runs == 1 else 's'} and {hours:,.0f} accelerator-hours on"
        f" {named}. The dearest experiment is {dearest.name}: {least}{dollars(dearest.total.usd)}"
        f" for {dearest.runs} run{'' if dearest.runs == 1 else 's'}{trains} on {dearest.rent}."
    )


def _over(limits: Sequence[LimitCheck]) -> Iterator[str]:
    yield from (one.over_text for one in limits if one.is_over or one.is_unknown)


def _when(books: Books, rows: Sequence[ExperimentRow]) -> Iterator[str]:
    if not rows:
        return
    project = books.project
    last = max(rows, key=lambda row: row.ends_h)
    ends = month_at(project.start, last.ends_h)
    if ends > project.end:
        yield (
            f"It does not end in time: {last.name} goes on until {ends}, and the project ends in"
            f" {project.end}."
        )
    else:
        days = format_duration(last.ends_h)
        yield f"The last experiment, {last.name}, ends in {ends}, {days} after the start."


def option_text(
    name: str,
    total: MoneyRange,
    planned: MoneyRange,
    ends: Month,
    days: float,
    *,
    is_same_part: bool = True,
) -> str:
    """Return in words what an option means beside what is planned.

    Args:
        name: of the option.
        total: of the project on it, US dollars.
        planned: of the project as it is planned.
        ends: month of its end.
        days: until then.
        is_same_part: whether what has no known price is the same of both.
    """
    if (total.usd, total.lower_bound) == (planned.usd, planned.lower_bound):
        return f"The {name} option is the planned one."
    least = "at least " if total.lower_bound else ""
    known = total.change_text(planned, dollars, is_same_part=is_same_part)
    change = "" if known is None else f", {known}"
    return (
        f"The {name} option takes {least}{dollars(total.usd)}{change}, and ends in"
        f" {ends} ({format_duration(days * 24)} after the start)."
    )
