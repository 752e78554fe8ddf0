"""What a colleague would say first of a project's accelerators over time."""

from __future__ import annotations

from ...catalog.units import HOURS_PER_DAY
from ..budget.report.capacity_rows import AcceleratorNeed, CapacityOverTime

LATE_DAYS = 0.05
"""What is less is not worth a word."""


def headline(found: CapacityOverTime) -> str:
    """Return when it ends, what ends later than wanted, and how many more would help."""
    late = [one for one in found.jobs if one.slips_days >= LATE_DAYS]
    likely = f"likely ends on {found.end}"
    if found.end_low < found.end_high:
        likely += f" ({found.end_low} to {found.end_high})"
    if not found.have:
        peaks = _peaks(found)
        return f"The project {likely} with as many accelerators as it wants: {peaks}."
    here = " and ".join(f"{count} × {kind}" for kind, count in found.have.items())  # noqa: RUF001
    if not late:
        return f"{here} are enough: nothing waits, and the project {likely}."
    worst = max(late, key=lambda one: one.slips_days)
    days = (found.end - found.wanted_end).days
    delay = f", {_days(days)} later than it could" if days >= 1 else ", no later than it could"
    more = "; ".join(
        f"{one.wanted - one.have} more {one.accelerator} by {one.short_from}"
        for one in found.shortages
    )
    return (
        f"With {here} the project {likely}{delay}. {_counted(len(late))} later than wanted,"
        f" {worst.name} by {_days(worst.slips_days)}{' (most)' if len(late) > 1 else ''}."
        + (f" With {more} nothing would." if more else "")
    )


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
