"""Sums of the ledger's rows by month, experiment, owner, provider and kind, against limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal

from .ledger import total_usd
from .money import NOTHING
from .planned import PlannedRuns
from .project.months import Month
from .project.project import Project
from .report.rows import Entry, LimitCheck, Sum

NO_EXPERIMENT = "the project"
NO_OWNER = "no owner"
NO_PROVIDER = "no provider"


def sums_by(
    entries: Iterable[Entry],
    key: Callable[[Entry], str | None],
    *,
    unnamed: str = "",
    limits: Mapping[str, Decimal] | None = None,
) -> tuple[Sum, ...]:
    """Return sums of the rows by a name of them, the dearest first; together all the rows.

    Args:
        entries: the ledger.
        key: the name of a row; None: it has none.
        unnamed: what rows without a name stand under.
        limits: the most that a name's sum may be.
    """
    by_name: dict[str, Decimal] = {}
    for row in entries:
        name = key(row) or unnamed
        by_name[name] = by_name.get(name, NOTHING) + row.usd
    whole = sum(by_name.values(), NOTHING)
    found = [
        Sum(name=name, usd=usd, share=_share(usd, whole), limit_usd=(limits or {}).get(name))
        for name, usd in by_name.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.usd, one.name)))


def months_of(project: Project, entries: Iterable[Entry]) -> list[Month]:
    """Return the months of the project, and those after it that a row falls into."""
    last = max([project.end, *(row.month for row in entries)])
    return [project.start.plus(i) for i in range(last.since(project.start) + 1)]


def sums_by_month(
    entries: Iterable[Entry], months: Sequence[Month], limit_usd: Decimal | None
) -> tuple[Sum, ...]:
    """Return the sum of every month, in order, also of those in which nothing is spent."""
    by_month = {one.name: one for one in sums_by(entries, lambda row: str(row.month))}
    nothing = {str(month): Sum(name=str(month), usd=NOTHING, share=0.0) for month in months}
    found = {**nothing, **by_month}
    return tuple(found[str(month)].model_copy(update={"limit_usd": limit_usd}) for month in months)


def limit_checks(
    project: Project,
    entries: Sequence[Entry],
    by_month: Sequence[Sum],
    planned: Sequence[PlannedRuns],
    contingency_usd: Decimal,
) -> tuple[LimitCheck, ...]:
    """Return every limit of the project with what is planned against it."""
    limits = project.limits
    found: list[LimitCheck] = []

    def check(name: str, usd: Decimal, limit_usd: Decimal) -> None:
        found.append(
            LimitCheck(
                name=name,
                usd=usd,
                limit_usd=limit_usd,
                is_over=usd > limit_usd,
                on_exceed=limits.on_exceed,
            )
        )

    if limits.total is not None:
        check("total", total_usd(entries) + contingency_usd, limits.total)
    if limits.month is not None:
        dearest = max(by_month, key=lambda one: one.usd)
        check(f"month {dearest.name}", dearest.usd, limits.month)
    for owner, limit_usd in limits.owners.items():
        spent = total_usd(row for row in entries if row.owner and is_same_owner(row.owner, owner))
        check(f"owner {owner}", spent, limit_usd)
    if limits.run is not None:
        for one in planned:
            usd = one.chosen().whole_usd
            if usd is not None:
                check(f"run of {one.name}", usd, limits.run)
    return tuple(found)


def owner_limits(project: Project, entries: Iterable[Entry]) -> dict[str, Decimal]:
    """Return the limit of every owner in the ledger that has one, by the name in the ledger.

    An owner whose name is written in several ways has one limit for all of them: it is given for
    none, as it is not that of a part.
    """
    written = {row.owner for row in entries if row.owner}
    found: dict[str, Decimal] = {}
    for owner, limit_usd in project.limits.owners.items():
        same = [one for one in written if is_same_owner(one, owner)]
        if len(same) == 1:
            found[same[0]] = limit_usd
    return found


def is_same_owner(one: str, other: str) -> bool:
    """Whether two names are one owner's: `Team A` is `team-a`, as in the labels of launches."""
    return _folded(one) == _folded(other)


def _folded(owner: str) -> str:
    return re.sub(r"[\W_]+", "-", owner.casefold()).strip("-")


def _share(usd: Decimal, whole: Decimal) -> float:
    return float(usd / whole) if whole else 0.0
