"""Sums of the ledger's rows by month, experiment, owner, provider and kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal

from ...catalog.text.same_name import is_same_name
from .money import NOTHING, cents
from .project.months import Month
from .project.project import Project
from .report.open_rows import OpenLedgerLine, most_usd
from .report.rows import Entry, LedgerLine, Sum

NO_EXPERIMENT = "the project"
NO_OWNER = "no owner"
NO_PROVIDER = "no provider"


def sums_by(
    entries: Iterable[Entry],
    key: Callable[[LedgerLine], str | None],
    *,
    unnamed: str = "",
    limits: Mapping[str, Decimal] | None = None,
    open_lines: Iterable[OpenLedgerLine] = (),
) -> tuple[Sum, ...]:
    """Return sums of the rows by a name of them, the dearest first; together all the rows.

    Args:
        entries: the ledger.
        key: the name of a row; None: it has none.
        unnamed: what rows without a name stand under.
        limits: the most that a name's sum may be.
        open_lines: what has no known price; its names are there too, with the least they may be.
    """
    least: dict[str, list[OpenLedgerLine]] = {}
    for line in open_lines:
        least.setdefault(key(line) or unnamed, []).append(line)
    by_name: dict[str, Decimal] = dict.fromkeys(sorted(least), NOTHING)
    for row in entries:
        name = key(row) or unnamed
        by_name[name] = by_name.get(name, NOTHING) + row.usd
    whole = sum(by_name.values(), NOTHING)
    found = [
        Sum(
            name=name,
            usd=usd,
            share=_share(usd, whole),
            lower_bound=name in least,
            at_most_usd=_at_most_usd(usd, least.get(name, ())),
            limit_usd=(limits or {}).get(name),
        )
        for name, usd in by_name.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.usd, one.name)))


def months_of(project: Project, entries: Iterable[LedgerLine]) -> list[Month]:
    """Return the months of the project, and those after it that a row falls into."""
    last = max([project.end, *(row.month for row in entries)])
    return [project.start.plus(i) for i in range(last.since(project.start) + 1)]


def sums_by_month(
    entries: Iterable[Entry],
    months: Sequence[Month],
    limit_usd: Decimal | None,
    open_lines: Iterable[OpenLedgerLine] = (),
) -> tuple[Sum, ...]:
    """Return the sum of every month, in order, also of those in which nothing is spent."""
    sums = sums_by(entries, lambda row: str(row.month), open_lines=open_lines)
    by_month = {one.name: one for one in sums}
    nothing = {str(month): Sum(name=str(month), usd=NOTHING, share=0.0) for month in months}
    found = {**nothing, **by_month}
    return tuple(found[str(month)].model_copy(update={"limit_usd": limit_usd}) for month in months)


def owner_limits(project: Project, entries: Iterable[LedgerLine]) -> dict[str, Decimal]:
    """Return the limit of every owner in the ledger that has one, by the name in the ledger.

    An owner whose name is written in several ways has one limit for all of them: it is given for
    none, as it is not that of a part.
    """
    written = {row.owner for row in entries if row.owner}
    found: dict[str, Decimal] = {}
    for owner, limit_usd in project.limits.owners.items():
        same = [one for one in written if is_same_name(one, owner)]
        if len(same) == 1:
            found[same[0]] = limit_usd
    return found


def _at_most_usd(usd: Decimal, left: Sequence[OpenLedgerLine]) -> Decimal | None:
    """Return a sum with what has no price at its dearest; None where that is nothing or open."""
    more_usd = most_usd(left)
    return None if not left or more_usd is None else cents(usd + more_usd)


def _share(usd: Decimal, whole: Decimal) -> float:
    return float(usd / whole) if whole else 0.0
