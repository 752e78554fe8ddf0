"""The sentences of a report: its key figures, how it stands against its limits, what moves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from ....catalog.text.amounts import format_given_share
from ....catalog.text.quantity import format_duration
from ....catalog.units import HOURS_PER_DAY
from ....planner.budget.report.report import BudgetReport
from ....planner.budget.report.rows import OptionRow
from .figures import UNKNOWN, about_usd, clean, number, usd

SYMBOLS = {"EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹"}
"""Signs of currencies that stand before an amount; others follow it by their code."""
WORDS = (
    (
        "Accelerator",
        "A processor that models are trained on, a GPU or its like, rented by the hour.",
    ),
    ("Accelerator-hour", "One accelerator rented for one hour."),
    ("Experiment", "A question that is answered by training a model, once or several times."),
    ("Run", "One training from its begin to its end."),
    (
        "80 % range, likely at least, likely at most",
        "In 8 of 10 cases the true figure is between the two; in 1 of 10 below, in 1 above.",
    ),
    ("Contingency", "Money set aside for what nobody planned."),
    (
        "On demand, spot, reserved",
        "Ways to rent: at any time; cheaper, but it may be taken back; booked ahead.",
    ),
    (
        "GB, GB-month",
        "Data as its provider counts it, and kept for a month. Where a provider's GB has 2^30"
        " bytes, as on AWS and Google Cloud, the 1,000 GB of a project file are 931 of them.",
    ),
    ("kg CO2e", "Greenhouse gases of the electricity, as kilograms of carbon dioxide."),
)
"""What a reader who trains no models needs to know."""


@dataclass(frozen=True)
class KeyFigure:
    """One of the figures that the first page begins with."""

    label: str
    value: str
    note: str


def headline(report: BudgetReport) -> str:
    """Return what the report is of."""
    return f"Budget of {clean(report.project.name)}"


def subtitle(report: BudgetReport) -> str:
    """Return whose project it is and which months are planned."""
    project = report.project
    last = project.start.plus(project.months - 1)
    people = [clean(one) for one in (project.team, project.owner) if one]
    span = f"{project.start} to {last} ({project.months} months)"
    if project.months == 1:
        span = f"{project.start} (1 month)"
    return " · ".join([*people, span])


def first_page(report: BudgetReport) -> list[str]:
    """Return the summary without the sentences about options and limits, shown below it anyway."""
    below = {one.text for one in report.options}
    below |= {one.over_text for one in report.limits if one.is_over or one.is_unknown}
    return [line for line in report.summary if line not in below]


def key_figures(report: BudgetReport) -> list[KeyFigure]:
    """Return the figures of the first page, that to ask for first."""
    total = report.total
    added = (
        f"planned cost and {format_given_share(report.contingency_share)} for what nobody planned"
        if report.contingency_usd
        else "the planned cost; no contingency is added"
    )
    note = added + own(report, report.budget_usd)
    at_least, lines = "", "the sum of every line of this report"
    if report.is_lower_bound:
        at_least, lines = "at least ", clean(report.unpriced_text)
    of_known = "; of what has a price" if report.is_lower_bound else ""
    figures = [
        KeyFigure("Budget to ask for", at_least + usd(report.budget_usd), note),
        KeyFigure("Planned cost", at_least + usd(total.usd), lines),
        KeyFigure(
            "80 % range of the cost",
            f"{about_usd(total.p10_usd)} to {about_usd(total.p90_usd)}",
            f"as likely above as below {about_usd(total.p50_usd)}{of_known}",
        ),
        KeyFigure(
            "Accelerator-hours", number(report.accelerator_hours), "one accelerator for one hour"
        ),
        KeyFigure("Energy", _or_unknown(report.energy_kwh, "kWh"), "of all runs"),
        KeyFigure("Carbon", _or_unknown(report.kg_co2e, "kg CO2e"), "of that electricity"),
    ]
    if report.unfunded_usd is not None:
        text = (
            "no source of money pays this"
            if report.unfunded_usd
            else "all of the planned cost is paid for"
            if not report.is_lower_bound
            else "all of the planned cost that is known is paid for"
        )
        unfunded = at_least + usd(report.unfunded_usd)
        figures.insert(3, KeyFigure("Not funded", unfunded, text))
    return figures


def own(report: BudgetReport, amount_usd: Decimal) -> str:
    """Return ", €36,737.90 at 0.86 of 2026-08-20", or nothing without a currency of one's own."""
    currency = report.currency
    if currency is None:
        return ""
    amount = amount_usd * Decimal(str(currency.per_usd))
    sign = SYMBOLS.get(currency.code)
    text = f"{sign}{amount:,.2f}" if sign else f"{amount:,.2f} {currency.code}"
    return f"; {text} at {currency.per_usd:g} {currency.code} a US dollar of {currency.date}"


def beside_plan(option: OptionRow, options: Sequence[OptionRow]) -> str:
    """Return in words by how much an option differs from the plan; "planned" where it does not."""
    planned = next((one for one in options if one.is_planned), None)
    if planned is None:
        return clean(option.text)
    later = option.days - planned.days
    said: list[str] = []
    change = option.total.change_text(planned.total, usd, is_same_part=option.is_same_part)
    if option.total.usd != planned.total.usd:
        said.append("cost not comparable" if change is None else f"{change} than planned")
    # Below a hundredth of a day the two tell the same day.
    if abs(later) >= 0.01:
        hours = format_duration(abs(later) * HOURS_PER_DAY)
        said.append(f"ends {hours} {'later' if later > 0 else 'earlier'}")
    return ", ".join(said) or "planned"


def verdict(report: BudgetReport) -> str | None:
    """Return how the plan stands against its limits; None for a project without limits."""
    if not report.limits:
        return None
    over = [one for one in report.limits if one.is_over]
    count = len(report.limits)
    unknown = [one for one in report.limits if one.is_unknown]
    if unknown and not over:
        which = "the limit is" if count == 1 else f"{len(unknown)} of {count} limits are"
        why = clean(report.unpriced_text)
        return f"Not known whether {which} kept: {why}."
    if not over:
        few = {1: "The limit is kept", 2: "Both limits are kept"}
        return f"{few.get(count, f'All {count} limits are kept')}{_at_dearest(report)}."
    worst = sorted(over, key=lambda one: one.limit_usd - one.highest_usd)
    named = [f"{clean(one.name)} by {usd(one.highest_usd - one.limit_usd)}" for one in worst[:3]]
    rest = [f"{len(over) - 3} more"] if len(over) > 3 else []
    return f"{len(over)} of {count} limits are exceeded: {'; '.join([*named, *rest])}."


def _at_dearest(report: BudgetReport) -> str:
    """Return how far the limit goes that comes nearest where something has no price, or nothing."""
    found = [one for one in report.limits if one.kept_text is not None]
    if not found:
        return ""
    nearest = min(found, key=lambda one: one.limit_usd - (one.at_most_usd or one.usd))
    named = "" if len(report.limits) == 1 else f"{clean(nearest.name)} is "
    return f": {named}{nearest.kept_text}"


def is_over(report: BudgetReport) -> bool:
    """Return whether any limit is exceeded, or may be; also one of which that is only said."""
    return any(one.is_over or one.is_unknown for one in report.limits)


def standing(report: BudgetReport) -> str:
    """Return in two or three words how a report with limits stands against them."""
    if any(one.is_over for one in report.limits):
        return "over a limit"
    return "limits not known" if is_over(report) else "within the limits"


def movers(report: BudgetReport) -> list[str]:
    """Return what would change the total, a sentence for each assumption."""
    at_least = "at least " if report.is_lower_bound else ""
    return [
        f"{_capital(clean(one.name))}: the cost is {at_least}{about_usd(one.low_usd)} at "
        f"{clean(one.low)}, and {at_least}{about_usd(one.high_usd)} at {clean(one.high)}."
        for one in report.sensitivities
    ]


def dates(report: BudgetReport) -> list[str]:
    """Return of what day the report and its prices are, and how its ranges are made."""
    project = report.project
    prices = f"Prices are those of the snapshot of {report.snapshot_date}"
    dated = report.price_dates
    if dated is not None:
        prices += f"; those used here are dated {dated.text('%Y-%m-%d')}"
    made = f"Made by gpuplan {report.gpuplan_version} at {report.generated_at}"
    if project.file:
        made += f" from {clean(project.file)}"
    return [
        f"{prices}.",
        f"{made}; SHA-256 of what the project says: {project.content_hash[:12]}.",
        f"Ranges are of a simulation with {report.draws:,} draws (seed {report.seed}).",
        "All amounts are US dollars, each line rounded to the cent; sums are those of the lines.",
    ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _or_unknown(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{number(value)} {unit}"
