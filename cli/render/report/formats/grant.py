"""The part of a request for cloud credits that says what is computed, with what, and why so much.

As CloudBank and NAIRR ask for it: "Estimate of Compute, Storage and Other Resources", in a text of
at most three pages, for twelve months, justified by the work and not by how many people do it:
https://www.cloudbank.org/best-practices-nairr-cloud-resource-requests
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from .....catalog.text.amounts import format_given_share
from .....catalog.units import SECONDS_PER_HOUR, TERA
from .....planner.budget.report.report import BudgetReport
from .....planner.budget.report.rows import ExperimentRow, Sum
from .....planner.budget.report.summary import WHAT_IF
from .. import words
from ..figures import about_usd, clean, count, cut, usd
from ..tables.grant_tables import quarters_table, resources_table
from ..tables.money_tables import range_cells
from ..tables.tables import Column, Table, without_empty
from .calculator import calculator_table
from .document import Document, Passage

MONTHS = 12
"""How long a grant of credits lasts, as the page above says."""
MOST_ROWS = 9
"""Of each table, and of each list: what three pages of A4 hold."""
MOST_POINTS = 7
LONGEST_NAME = 40
LONGEST_TEXT = 150
MET = (
    ("runs out of memory", "A few steps are run first; a smaller micro-batch takes less memory."),
    ("by reservation only", "Capacity is asked for before the award is accepted."),
    ("spot machines", "Checkpoints are kept, and lost work is counted in the cost."),
    ("price", "Prices are looked up again when the award begins."),
    ("deadline", "Runs begin early; those that matter most come first."),
    ("quota", "Quota is requested when the award begins, before the first run."),
)
"""What a risk's sentence says → how it is met; the first that fits."""
UNANSWERED = "[how it is met]"
"""For the team to fill in."""


def grant(report: BudgetReport) -> Document:
    """Return the section of a request for cloud credits; printed it has three pages of A4 at most.

    Every amount is one of the report's. Long tables end with the sum of the rows left out.
    """
    passages = [
        Passage(
            title="What is computed, and why so much",
            sentences=tuple(_why(report)),
            tables=(_work(report),) if report.experiments else (),
        ),
        Passage(title="Resources by type", tables=(resources_table(report),)),
        Passage(title="Timeline", tables=(quarters_table(report),)),
        Passage(title="Assumptions and their sources", points=tuple(_assumptions(report))),
        Passage(title="Risks and how they are met", tables=(_risks(report),)),
        Passage(title="Not included", points=_some(list(report.not_included))),
        Passage(title="For the providers' calculators", tables=(calculator_table(report),)),
    ]
    return Document(
        kind="Request for computing resources",
        title="Estimate of compute, storage and other resources",
        subtitle=f"{cut(clean(report.project.name), 2 * LONGEST_NAME)} · {words.subtitle(report)}",
        lead=tuple(_asked(report)),
        passages=tuple(one for one in passages if _has_content(one)),
        most_rows=MOST_ROWS,
    )


def _has_content(passage: Passage) -> bool:
    return bool(passage.points or passage.sentences or any(one.rows for one in passage.tables))


def _asked(report: BudgetReport) -> Iterator[str]:
    at_least = "At least " if report.is_lower_bound else ""
    text = f"{at_least}{usd(report.budget_usd)} is asked for"
    if report.contingency_usd:
        part = format_given_share(report.contingency_share)
        text += f": {usd(report.total.usd)} that is planned, and {part} for what nobody planned"
    total = report.total
    what = "cost of what has a price" if report.is_lower_bound else "cost"
    yield (
        f"{text}. With a chance of 80 % the {what} is between {about_usd(total.p10_usd)} and"
        f" {about_usd(total.p90_usd)}."
    )
    if report.is_lower_bound:
        known = clean(report.unpriced_text)
        yield f"{known[0].upper()}{known[1:]}: the project costs more than these sums."
    if len(report.by_month) > MONTHS:
        of_year = report.by_month[:MONTHS]
        first = sum((one.usd for one in of_year), Decimal(0))
        least = "at least " if any(one.lower_bound for one in of_year) else ""
        yield (
            f"Credits are given for {MONTHS} months: {least}{usd(first)} of the planned cost falls"
            f" into the first {MONTHS} of {len(report.by_month)} months."
        )


def _why(report: BudgetReport) -> Iterator[str]:
    runs = sum(row.runs for row in report.experiments)
    rows = report.experiments
    if rows:
        yield (
            f"{count(runs)} run{'' if runs == 1 else 's'} of {len(rows)} experiment"
            f"{'' if len(rows) == 1 else 's'} take {count(report.accelerator_hours)}"
            " accelerator-hours. The request follows from this work and its speed, not from the"
            " number of people: in each row, runs counted × hours of a run × accelerators are"  # noqa: RUF001
            " the accelerator-hours. Runs counted include what is begun again or ended early, and"
            " trials; hours are predicted from the model's own code, with start, evaluation,"
            " checkpoints and failures."
        )


def _work(report: BudgetReport) -> Table:
    rows = sorted(report.experiments, key=lambda row: -row.total.usd)
    table = Table(
        id="work",
        caption="Runs × work × speed, the dearest experiment first",  # noqa: RUF001
        columns=(
            Column("Experiment", is_name=True),
            Column("Work of a run", is_name=True, may_be_absent=True),
            Column("Runs", "count", adds=True),
            Column("Runs counted", "number"),
            Column("Seconds a step", "number", may_be_absent=True),
            Column("TFLOP/s an accelerator", "number", may_be_absent=True),
            Column("Hours of a run", "number"),
            Column("Accelerators of a run"),
            Column("Accelerator-hours", "count", adds=True),
            Column("US dollars", "usd", adds=True),
        ),
        rows=tuple(
            (
                cut(clean(row.name), LONGEST_NAME),
                None if row.work is None else cut(clean(row.work), LONGEST_NAME),
                row.runs,
                row.runs_expected,
                row.step_time_s,
                _tflops(row),
                row.run_hours,
                clean(row.devices),
                row.accelerator_hours,
                range_cells(row.total)[0],
            )
            for row in rows
        ),
        has_total=True,
    )
    return without_empty(table)


def _tflops(row: ExperimentRow) -> float | None:
    """Return FLOPs of a run ÷ its accelerator-seconds, in TFLOP/s; None where they are unknown."""
    seconds = row.run_hours * SECONDS_PER_HOUR * row.accelerators
    if row.samples is None or row.flops_per_sample is None or not seconds:
        return None
    return row.samples * row.flops_per_sample / seconds / TERA


def _assumptions(report: BudgetReport) -> Iterator[str]:
    # The prices have a sentence of their own; what the project says comes before defaults.
    rows = [one for one in report.assumptions if one.name != "prices"]
    rows.sort(key=lambda one: one.is_default)
    texts = [f"{clean(one.name)}: {clean(one.value)} ({clean(one.source)})" for one in rows]
    # A source is given whole: half an address is none.
    yield from _some(texts, longest=2 * LONGEST_TEXT)
    yield words.dates(report)[0]


def _some(texts: list[str], *, longest: int = LONGEST_TEXT) -> tuple[str, ...]:
    shown = [cut(clean(text), longest) for text in texts[:MOST_POINTS]]
    left = len(texts) - len(shown)
    return (*shown, f"{left} more in the full report") if left else tuple(shown)


def _risks(report: BudgetReport) -> Table:
    rows = [*_always(report)]
    rows += [(cut(clean(text), LONGEST_TEXT), _met(text)) for text in report.risks]
    return Table(
        id="risks",
        caption="Risks",
        columns=(Column("Risk"), Column("How it is met")),
        rows=tuple(rows[:MOST_POINTS]),
    )


def _always(report: BudgetReport) -> Iterator[tuple[str, str]]:
    """Yield the risks of every project, and that which moves this one most."""
    if not report.experiments:
        return
    kinds: dict[str, Sum] = {one.name: one for one in report.by_kind}
    failures = kinds.get("failures")
    if failures is not None:
        yield (
            "Machines fail during a run.",
            (
                f"Checkpoints are kept; checkpoints, failures and restarts are in the cost with"
                f" {usd(failures.usd)}."
            ),
        )
    one = next((one for one in report.sensitivities if not one.name.endswith(WHAT_IF)), None)
    if one is not None:
        yield (
            f"{cut(clean(one.name), LONGEST_NAME)}: at {clean(one.high)} the cost is"
            f" {about_usd(one.high_usd)}.",
            _reserve(report),
        )


def _reserve(report: BudgetReport) -> str:
    if report.contingency_usd:
        return f"{usd(report.contingency_usd)} is set aside for what nobody planned."
    return "Nothing is set aside for it in what is asked for."


def _met(risk: str) -> str:
    return next(
        (answer for words_of_it, answer in MET if words_of_it in risk),
        UNANSWERED,
    )
