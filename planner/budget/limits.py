"""The limits of a project: what is planned against each, and what launches have cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ...catalog.errors import UsageError, did_you_mean
from ...catalog.text.same_name import is_same_name
from .ledger import total_usd
from .money import NOTHING, cents
from .planned import PlannedRuns
from .project.on_exceed import OnExceed
from .project.project import Project
from .report.limit_rows import LimitCheck
from .report.open_rows import OpenLedgerLine, most_usd
from .report.rows import Entry, Sum

ONE = Decimal(1)


def limit_checks(
    project: Project,
    entries: Sequence[Entry],
    by_month: Sequence[Sum],
    planned: Sequence[PlannedRuns],
    contingency_usd: Decimal,
    *,
    open_lines: Sequence[OpenLedgerLine] = (),
    to_sign_usd: Decimal = NOTHING,
) -> tuple[LimitCheck, ...]:
    """Return every limit of the project with what is planned against it.

    Args:
        project: whose limits they are.
        entries: its ledger.
        by_month: sums of its months.
        planned: its runs.
        contingency_usd: what nobody planned, part of the total.
        open_lines: what is in no sum.
        to_sign_usd: what terms cost beyond what is in the sums, that must be signed for them.
    """
    limits = project.limits
    found = _Checks(limits.on_exceed)
    if limits.total is not None:
        whole = total_usd(entries) + contingency_usd
        times, left = 1 + Decimal(str(project.contingency)), _left_of(open_lines, planned)
        found.add("total", whole, limits.total, left, times=times)
        if to_sign_usd:
            name = "total with the terms to sign"
            found.add(name, whole + to_sign_usd, limits.total, left, times=times)
    if limits.month is not None:
        of_limit = _month_to_tell(by_month, limits.month)
        of_month = [one for one in open_lines if str(one.month) == of_limit.name]
        left = _left_of(of_month, planned)
        found.add(f"month {of_limit.name}", of_limit.usd, limits.month, left)
    for owner, limit_usd in limits.owners.items():
        usd = total_usd(row for row in entries if _is_of(row.owner, owner))
        of_owner = [one for one in open_lines if _is_of(one.owner, owner)]
        found.add(f"owner {owner}", usd, limit_usd, _left_of(of_owner, planned))
    for one in planned if limits.run is not None else ():
        usd = one.chosen().whole_usd
        left = _left_of_run(one)
        found.add(f"run of {one.name}", usd or NOTHING, limits.run or NOTHING, left)
    return tuple(found.checks)


def _month_to_tell(by_month: Sequence[Sum], limit_usd: Decimal) -> Sum:
    """Return the month that decides on a limit of months.

    The dearest where that is too dear; else one of which it is not known, the dearest of them; else
    the one that comes nearest.
    """

    def order(one: Sum) -> tuple[bool, bool, Decimal]:
        limited = one.model_copy(update={"limit_usd": limit_usd})
        most_usd = one.usd if one.at_most_usd is None else one.at_most_usd
        return limited.is_over, limited.is_unknown, one.usd if limited.is_over else most_usd

    return max(by_month, key=order)


@dataclass(frozen=True, kw_only=True)
class _Left:
    """What counts against a limit and has no known price."""

    unpriced: tuple[str, ...] = ()
    in_part: tuple[str, ...] = ()
    """Names of what has a price that leaves a part of it out."""
    most_usd: Decimal | None = NOTHING
    """What it costs at the dearest known prices; None where it may cost more."""


def _left_of(lines: Sequence[OpenLedgerLine], planned: Sequence[PlannedRuns]) -> _Left:
    priced = {one.name for one in planned if one.chosen().usd is not None}
    parts = [one for one in lines if one.experiment in priced]
    wholes = [one for one in lines if one.experiment not in priced]
    return _Left(
        unpriced=tuple(dict.fromkeys(one.experiment or one.name for one in wholes)),
        in_part=tuple(dict.fromkeys(one.experiment or one.name for one in parts)),
        most_usd=most_usd(lines),
    )


def _left_of_run(one: PlannedRuns) -> _Left:
    """Return what one run has no known price of."""
    cost = one.chosen()
    if cost.usd is None:
        # Without a price its least is nothing, and whether it keeps the limit is not known.
        return _Left(unpriced=(one.name,), most_usd=None)
    most = [line.most_usd for line in cost.open_lines]
    known = [usd for usd in most if usd is not None]
    return _Left(
        in_part=(one.name,) if most else (),
        most_usd=sum(known, NOTHING) if len(known) == len(most) else None,
    )


class _Checks:
    """Limits of a project, each with what of it has no price."""

    def __init__(self, on_exceed: OnExceed) -> None:
        self.checks: list[LimitCheck] = []
        self._on_exceed: OnExceed = on_exceed

    def add(
        self, name: str, usd: Decimal, limit_usd: Decimal, left: _Left, *, times: Decimal = ONE
    ) -> None:
        """Add a limit; what has no price counts `times`, as with a contingency."""
        is_least = bool(left.unpriced or left.in_part)
        most_usd = left.most_usd if is_least else None
        self.checks.append(
            LimitCheck(
                name=name,
                usd=usd,
                limit_usd=limit_usd,
                is_over=usd > limit_usd,
                on_exceed=self._on_exceed,
                unpriced=left.unpriced,
                in_part=left.in_part,
                at_most_usd=None if most_usd is None else cents(usd + most_usd * times),
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
    return [name for name in named if not any(is_same_name(name, one) for one in known)]


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
    usd = [usd for name, usd in spent.by_owner.items() if is_same_name(name, owner)]
    return sum(usd, NOTHING) if usd else None


def _months(planned: LimitCheck, spent: SpentOf) -> Iterator[LimitCheck]:
    """Yield the month that is planned to be the dearest, and others that cost too much already."""
    _, _, dearest = planned.name.partition(" ")
    yield _with(planned, spent.by_month.get(dearest))
    for month, usd in sorted(spent.by_month.items()):
        if month != dearest and usd > planned.limit_usd:
            nothing = {"usd": NOTHING, "unpriced": (), "in_part": (), "at_most_usd": None}
            changes = {"name": f"month {month}", **nothing}
            yield _with(planned.model_copy(update=changes), usd)


def _with(check: LimitCheck, spent_usd: Decimal | None) -> LimitCheck:
    if spent_usd is None:
        return check
    is_over = max(check.usd, spent_usd) > check.limit_usd
    return check.model_copy(update={"spent_usd": spent_usd, "is_over": is_over})


def _is_of(owner: str | None, name: str) -> bool:
    return owner is not None and is_same_name(owner, name)
