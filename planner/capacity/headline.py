"""What a colleague would say first of a project's accelerators over time."""

from __future__ import annotations

from ...catalog.units import HOURS_PER_DAY
from ..budget.report.capacity_rows import AcceleratorNeed, CapacityOverTime, QuotaNeed

LATE_DAYS = 0.05
"""What is less is not worth a word."""


def headline(found: CapacityOverTime) -> str:
    """Return when it ends, what ends later than wanted, and how many more would help."""
    late = [one for one in found.jobs if one.slips_days >= LATE_DAYS and not one.cannot_start]
    likely = f"likely ends on {found.end}"
    if found.end_low < found.end_high:
        likely += f" ({found.end_low} to {found.end_high})"
    if not found.have and not found.quotas:
        peaks = _peaks(found)
        return f"The project {likely} with as many accelerators as it wants: {peaks}."
    here = _here(found)
    more = "; ".join(_more(found))
    closed = [one.name for one in found.jobs if one.cannot_start]
    if closed:
        return _closed(found, here, closed, more)
    if not late:
        are = "are" if found.have else "is"
        return f"{here[0].upper()}{here[1:]} {are} enough: nothing waits, and the project {likely}."
    worst = max(late, key=lambda one: one.slips_days)
    days = (found.end - found.wanted_end).days
    delay = f", {_days(days)} later than it could" if days >= 1 else ", no later than it could"
    return (
        f"With {here} the project {likely}{delay}. {_counted(len(late))} later than wanted,"
        f" {worst.name} by {_days(worst.slips_days)}{' (most)' if len(late) > 1 else ''}."
        + (f" With {more} nothing would." if more else "")
    )


def _here(found: CapacityOverTime) -> str:
    kinds = [f"{count} × {kind}" for kind, count in found.have.items()]  # noqa: RUF001
    quota = "the quota of your account"
    if found.quotas_unknown:
        quota += ", as far as it is known,"
    return " and ".join([*kinds, *([quota] if found.quotas else [])])


def _closed(found: CapacityOverTime, here: str, closed: list[str], more: str) -> str:
    """Return what never starts, and what it takes."""
    if len(closed) == 1:
        which = f"{closed[0]} cannot start at all"
    else:
        which = f"{len(closed)} of {len(found.jobs)} sets of runs cannot start at all"
    return (
        f"With {here} the project does not end: {which}. With {more} it likely ends on"
        f" {found.wanted_end}."
    )


def _more(found: CapacityOverTime) -> list[str]:
    kinds = [
        f"{one.wanted - one.have} more {one.accelerator} by {one.short_from}"
        for one in found.shortages
    ]
    return [*kinds, *(_missing_of(one) for one in found.quotas if one.short_from is not None)]


def _missing_of(one: QuotaNeed) -> str:
    asked = "" if one.ask_by is None else f" (ask by {one.ask_by})"
    where = "all regions" if one.region == "global" else one.region
    more = f"{one.wanted - one.free:,} more {one.unit} of {one.name}"
    return f"{more} in {one.provider} {where} by {one.short_from}{asked}"


def _peaks(found: CapacityOverTime) -> str:
    highest: dict[str, AcceleratorNeed] = {}
    for one in found.needs:
        known = highest.get(one.accelerator)
        if known is None or one.peak > known.peak:
            highest[one.accelerator] = one
    return ", ".join(
        f"at most {one.peak} × {one.accelerator} ({one.month})"  # noqa: RUF001
        for one in highest.values()
    )


def _counted(count: int) -> str:
    return "One set of runs ends" if count == 1 else f"{count} sets of runs end"


def _days(days: float) -> str:
    if days < 1:
        hours = round(HOURS_PER_DAY * days)
        return f"{hours} hour{'' if hours == 1 else 's'}"
    whole = round(days)
    return f"{whole} day{'' if whole == 1 else 's'}"
