"""Who pays for a project, in words: what is open, indirect cost, what is not used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from ..money import NOTHING, cents, dollars
from ..project.lines import Funding
from ..project.project import Project
from .rows import FundingRow

LEAST_LAPSE_USD = Decimal("0.01")


def paid(
    project: Project,
    rows: Sequence[FundingRow],
    unfunded_usd: Decimal | None,
    contingency_usd: Decimal,
    *,
    is_whole: bool = True,
) -> Iterator[str]:
    """Yield what the sources of money pay and what they do not; nothing where there are none.

    Args:
        project: whose money it is.
        rows: what each of its sources pays, in its order.
        unfunded_usd: planned cost that none pays; None where it names none.
        contingency_usd: for what nobody planned, beside the planned cost.
        is_whole: whether everything that is planned has a price.
    """
    if unfunded_usd is None:
        return
    reserve_usd = _reserve_usd(project, rows)
    yield _covered(unfunded_usd, contingency_usd, reserve_usd, is_whole=is_whole)
    indirect_usd = sum((one.indirect_usd for one in rows), NOTHING)
    if indirect_usd:
        yield (
            "Indirect cost is in none of these sums: the sources pay"
            f" {dollars(indirect_usd)} of it beside the planned cost."
        )
    for source, row in zip(project.funding, rows, strict=True):
        # A cent may be left of what no cost with its indirect share comes to exactly.
        if row.lapses_usd > LEAST_LAPSE_USD:
            yield _unused(source, row, project, is_needed=bool(unfunded_usd))


def _covered(
    unfunded_usd: Decimal, contingency_usd: Decimal, reserve_usd: Decimal, *, is_whole: bool
) -> str:
    short_usd = max(NOTHING, contingency_usd - reserve_usd)
    planned = "The planned cost" if is_whole else "The planned cost that is known"
    if unfunded_usd:
        nor = f", nor {dollars(short_usd)} of the contingency" if short_usd else ""
        least = "" if is_whole else "At least "
        return f"{least}{dollars(unfunded_usd)} of it is paid by no source of money{nor}."
    if not contingency_usd:
        return "All of it is funded." if is_whole else "All of it that has a price is funded."
    if short_usd:
        return f"{planned} is funded, but {dollars(short_usd)} of the contingency is not."
    return f"{planned} is funded, and so is the contingency."


def _reserve_usd(project: Project, rows: Sequence[FundingRow]) -> Decimal:
    """Return what is left for any cost until the end of the project, without indirect cost."""
    return sum(
        (
            cents(row.left_usd / (1 + Decimal(str(source.indirect))))
            for source, row in zip(project.funding, rows, strict=True)
            if source.provider is None and _pays_to_the_end(source, project)
        ),
        NOTHING,
    )


def _pays_to_the_end(source: Funding, project: Project) -> bool:
    return source.expires is None or source.expires >= project.end.first_day


def _unused(source: Funding, row: FundingRow, project: Project, *, is_needed: bool) -> str:
    if row.expires is not None and row.expires < project.start.first_day:
        return f"{row.name} pays nothing: it expires on {row.expires}, before the project begins."
    left = f"{dollars(row.lapses_usd)} of {row.name}"
    if not is_needed and _pays_to_the_end(source, project):
        return f"{left} is not needed for the planned cost, and expires on {row.expires}."
    return f"{left} expires unused on {row.expires}: run earlier, or shift cost to it."
