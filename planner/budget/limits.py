"""The limits of a project: what is planned against each, and what launches have cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ...catalog.errors import UsageError, did_you_mean
from .ledger import total_usd
from .money import NOTHING
from .planned import PlannedRuns
from .project.on_exceed import OnExceed
from .project.project import Project
from .report.limit_rows import LimitCheck
from .report.rows import Entry, Sum
from .sums import is_same_owner
from .unpriced import Unpriced


def limit_checks(
    project: Project,
    entries: Sequence[Entry],
    by_month: Sequence[Sum],
    planned: Sequence[PlannedRuns],
    contingency_usd: Decimal,
    *,
    unpriced: Sequence[Unpriced] = (),
    to_sign_usd: Decimal = NOTHING,
) -> tuple[LimitCheck, ...]:
    """Return every limit of the project with what is planned against it.

    Args:
        project: whose limits they are.
        entries: its ledger.
        by_month: sums of its months.
        planned: its runs.
        contingency_usd: what nobody planned, part of the total.
        unpriced: what is in no sum.
        to_sign_usd: what terms cost beyond what is in the sums, that must be signed for them.
    """
    found = _Checks(project, unpriced)
    limits = project.limits
    if limits.total is not None:
        whole = total_usd(entries) + contingency_usd
        found.add("total", whole, limits.total)
        if to_sign_usd:
            found.add("total with the terms to sign", whole + to_sign_usd, limits.total)
    if limits.month is not None:
        dearest = max(by_month, key=lambda one: one.usd)
        found.add(f"month {dearest.name}", dearest.usd, limits.month)
    for owner, limit_usd in limits.owners.items():
        usd = total_usd(row for row in entries if _is_of(row.owner, owner))
        of_owner = [one for one in unpriced if _is_of(one.owner, owner)]
        found.add(f"owner {owner}", usd, limit_usd, of_owner)
    for one in planned if limits.run is not None else ():
        usd = one.chosen().whole_usd
        # Without a price its least is nothing, and whether it keeps the limit is not known.
        of_run = [other for other in unpriced if other.is_of_runs and other.name == one.name]
        found.add(f"run of {one.name}", usd or NOTHING, limits.run or NOTHING, of_run)
    return tuple(found.checks)


class _Checks:
    """Limits of a project, each with what of it has no price: all of that, unless it is named."""

    def __init__(self, project: Project, unpriced: Sequence[Unpriced]) -> None:
        self.checks: list[LimitCheck] = []
        self._on_exceed: OnExceed = project.limits.on_exceed
        self._all = unpriced

    def add(
        self,
        name: str,
        usd: Decimal,
        limit_usd: Decimal,
        unpriced: Sequence[Unpriced] | None = None,
    ) -> None:
        """Add a limit; without `unpriced` everything that has no price counts against it."""
        left = self._all if unpriced is None else unpriced
        self.checks.append(
            LimitCheck(
                name=name,
                usd=usd,
                limit_usd=limit_usd,
                is_over=usd > limit_usd,
                on_exceed=self._on_exceed,
                unpriced=tuple(one.name for one in left if not one.is_in_part),
                in_part=tuple(one.name for one in left if one.is_in_part),
            )
        )


def unknown_owners(project: Project) -> Iterator[str]:
    """Yield a sentence for every owner with a limit whose name nothing in the project bears."""
    for name in _nobodys(project):
        yield f"Nothing that is planned is of {name}, whose limit counts nothing then."


def refuse_misspelt_owners(project: Project) -> None:
    """Refuse a limit of an owner whose name nothing bears, while another is nearly the same.

    Raises:
        UsageError: names both.
    """
    for name in _nobodys(project):
        meant = did_you_mean(name, sorted(_owners(project)))
        if meant:
            raise UsageError(
                f"limits.owners names {name}, and nothing that is planned is of {name}.{meant}",
                fix="a limit of nobody would always be kept.",
            )


def _nobodys(project: Project) -> list[str]:
    known = _owners(project)
    named = project.limits.owners
    return [name for name in named if not any(is_same_owner(name, one) for one in known)]


def _owners(project: Project) -> set[str]:
    parts = (*project.experiments.values(), *project.idle, *project.extras)
    return {one.owner for one in parts if one.owner} | ({project.owner} if project.owner else set())


@dataclass(frozen=True, kw_only=True)
class SpentOf:
    """What launches of a project have cost so far, US dollars."""

    total_usd: Decimal
    by_month: Mapping[str, Decimal]
    by_owner: Mapping[str, Decimal]
    """By the owner as the project writes it; launches without one are in none."""
    dearest_by_experiment: Mapping[str, Decimal]
    """The most that one launch of an experiment has cost."""


def with_spent_of(checks: Sequence[LimitCheck], spent: SpentOf) -> tuple[LimitCheck, ...]:
    """Return the limits with what launches have cost, which may exceed one that the plan keeps."""
    found: list[LimitCheck] = []
    for one in checks:
        kind, _, name = one.name.partition(" ")
        usd = None
        if one.name == "total":
            usd = spent.total_usd
        elif kind == "month":
            # A kept report may have further months, which are told anew.
            if not any(other.name.startswith("month ") for other in found):
                found += _months(one, spent)
            continue
        elif kind == "owner":
            usd = _of_owner(name, spent)
        elif kind == "run":
            usd = spent.dearest_by_experiment.get(name.removeprefix("of "))
        found.append(_with(one, usd))
    return tuple(found)


def _of_owner(owner: str, spent: SpentOf) -> Decimal | None:
    usd = [usd for name, usd in spent.by_owner.items() if is_same_owner(name, owner)]
    return sum(usd, NOTHING) if usd else None


def _months(planned: LimitCheck, spent: SpentOf) -> Iterator[LimitCheck]:
    """Yield the month that is planned to be the dearest, and others that cost too much already."""
    _, _, dearest = planned.name.partition(" ")
    yield _with(planned, spent.by_month.get(dearest))
    for month, usd in sorted(spent.by_month.items()):
        if month != dearest and usd > planned.limit_usd:
            changes = {"name": f"month {month}", "usd": NOTHING, "unpriced": (), "in_part": ()}
            yield _with(planned.model_copy(update=changes), usd)


def _with(check: LimitCheck, spent_usd: Decimal | None) -> LimitCheck:
    if spent_usd is None:
        return check
    is_over = max(check.usd, spent_usd) > check.limit_usd
    return check.model_copy(update={"spent_usd": spent_usd, "is_over": is_over})


def _is_of(owner: str | None, name: str) -> bool:
    return owner is not None and is_same_owner(owner, name)
