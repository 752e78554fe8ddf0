"""The limits of a project's file `gpuplan.yaml`, against what its launches have cost and may cost.

Of the project are the launches that were made for its file, those that carry its name, and those of
plans of its last report that were made for no file. Only launches count: storage, people and other
lines of a report are in none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from ...catalog.errors import LimitError
from ...catalog.frozen import FrozenModel, Usd
from ...catalog.text.same_name import is_same_name
from ...planner.budget.project.on_exceed import OnExceed
from .accounting import (
    ZERO,
    closed_unknown_at,
    committed_usd,
    is_unbounded,
    spent_in_usd,
    spent_usd,
)
from .launch_record import LaunchRecord

if TYPE_CHECKING:
    # An estimate reads the launches too, and a project's file would take a twentieth of its time.
    from ...planner.budget.project.lines import BudgetLimits

HOW_LONG_UNKNOWN = "There is a limit on spending, and how long this job runs is not known."
BOUND_IT = "give --steps, --max-cost or --max-hours."


@dataclass(frozen=True, kw_only=True)
class ProjectFile:
    """What launches need to know of a project's file."""

    name: str
    """Of the project."""
    path: Path
    """As it was named."""
    limits: BudgetLimits
    lines: Mapping[str, int]
    """The line of each limit: `run`, `month`, `total`, `owners.Ada`."""
    plans: frozenset[str] = frozenset()
    """Ids of the plans of its last report."""

    @property
    def absolute(self) -> str:
        """Return its path, wherever a later command is run."""
        return str(self.path.expanduser().resolve())

    @property
    def has_limits(self) -> bool:
        """Return whether anything is limited."""
        one = self.limits
        return (one.run, one.month, one.total) != (None, None, None) or bool(one.owners)

    @property
    def refuses(self) -> bool:
        """Return whether a launch beyond its limits is refused."""
        return self.has_limits and self.limits.on_exceed == "fail"

    def has(self, record: LaunchRecord) -> bool:
        """Return whether a launch is of the project."""
        return (
            record.project_file == self.absolute
            or is_same_name(record.project, self.name)
            or (record.project_file is None and record.plan in self.plans)
        )


class LimitStanding(FrozenModel):
    """One limit of a project's file and what a launch adds to it; US dollars."""

    name: str
    """What is limited: "run", "month 2026-11", "owner Ada", "total"."""
    spent_usd: Usd
    """So far, by the launches that it counts."""
    open_usd: Usd
    """What those of them that still run may cost beyond that, at worst, where that is known."""
    adds_usd: Usd | None
    """What this launch may cost at worst; None where how long it runs is not known."""
    total_usd: Usd | None
    """All of that; None where what it adds, or what an open launch may cost, is not known."""
    limit_usd: Usd
    """The most it may be."""
    is_over: bool | None
    """Whether it is above; None where that is not known."""
    on_exceed: OnExceed
    """Whether a launch beyond it is refused (`fail`) or only warned of (`warn`)."""
    file: str
    """The project's file, as it was named."""
    line: int | None
    """Of the file, where the limit stands."""
    open_unknown: tuple[str, ...] = ()
    """Runs of open launches whose worst case is not known, as nothing bounds them."""

    @property
    def place(self) -> str:
        """Return where it stands: `gpuplan.yaml:31`."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def over_text(self) -> str:
        """Return the sentence about a limit that is passed, or may be."""
        if self.open_unknown and self.adds_usd is not None:
            what = f"the limit of {self.name}, {_usd(self.limit_usd)} ({self.place}),"
            return open_unknown(what, self.open_unknown)
        if self.total_usd is None or self.adds_usd is None:
            return (
                f"Whether the limit of {self.name}, {_usd(self.limit_usd)} ({self.place}), is kept"
                " is not known, as how long this job runs is not."
            )
        limit = f"Over the limit of {self.name}, {_usd(self.limit_usd)} ({self.place})"
        if self.name == "run":
            return f"{limit}: this launch may cost {_usd(self.total_usd)} at worst."
        return (
            f"{limit}: {_usd(self.spent_usd)} is spent, open launches may cost"
            f" {_usd(self.open_usd)} more, and this one adds {_usd(self.adds_usd)} at worst:"
            f" {_usd(self.total_usd)} in all."
        )

    @property
    def way_on(self) -> str:
        """Return what to do about a limit that is passed."""
        left = self.limit_usd - self.spent_usd - self.open_usd
        ways = [f"hold this launch to what is left with --max-cost {left:.2f}"] if left > 0 else []
        if self.open_usd > 0:
            ways.append("end what is open (`gpuplan status`)")
        field = self.name.partition(" ")[0].replace("owner", "owners")
        ways.append(f"raise `{field}` at {self.place}")
        ways.append("write `on_exceed: warn` there")
        return ", or ".join(ways) + "."


def standings(
    wanted: LaunchRecord, others: Iterable[LaunchRecord], file: ProjectFile, *, now: datetime
) -> tuple[LimitStanding, ...]:
    """Return every limit of a project's file that a launch falls under, with what it adds.

    An open launch counts at its worst case, or at what its guard ends it at. A month is that
    of now (UTC): what was spent in it counts, and all that may still be.

    Args:
        wanted: the launch, kept or about to be.
        others: launches of the store; those of other projects are left out.
        file: of the project.
        now: the time, for what is spent by open launches.
    """
    known = [one for one in others if one.run != wanted.run and file.has(one)]
    limits = file.limits

    def stands(
        name: str,
        key: str,
        usd: Decimal,
        is_counted: Callable[[LaunchRecord], bool],
        month: str | None = None,
    ) -> LimitStanding:
        counted = [one for one in known if is_counted(one)]
        return _standing(name, usd, file.lines.get(key), wanted, counted, file, now, month)

    found: list[LimitStanding] = []
    if limits.run is not None:
        found.append(stands("run", "run", limits.run, lambda _: False))
    if limits.month is not None:
        month = month_of(now)
        found.append(stands(f"month {month}", "month", limits.month, lambda _: True, month))
    mine = wanted.owner
    found += [
        stands(f"owner {owner}", f"owners.{owner}", usd, lambda one: is_same_name(one.owner, mine))
        for owner, usd in limits.owners.items()
        if is_same_name(owner, mine)
    ]
    if limits.total is not None:
        found.append(stands("total", "total", limits.total, lambda _: True))
    return tuple(found)


def _standing(
    name: str,
    limit_usd: Decimal,
    line: int | None,
    wanted: LaunchRecord,
    counted: Sequence[LaunchRecord],
    file: ProjectFile,
    now: datetime,
    month: str | None,
) -> LimitStanding:
    already = spent_usd(wanted, now=now)
    spent = sum((spent_within(one, month, now=now) for one in (wanted, *counted)), ZERO)
    may_cost = sum((may_still_cost_usd(one, month, now=now) for one in counted), ZERO)
    reserved = wanted.reserved_usd
    adds = None if reserved is None else max(ZERO, reserved - already)
    unbounded = tuple(one.run for one in counted if is_unbounded(one))
    total = None if adds is None or unbounded else spent + may_cost + adds
    return LimitStanding(
        name=name,
        spent_usd=spent,
        open_usd=may_cost,
        adds_usd=adds,
        total_usd=total,
        limit_usd=limit_usd,
        is_over=None if total is None else total > limit_usd,
        on_exceed=file.limits.on_exceed,
        file=str(file.path),
        line=line,
        open_unknown=unbounded,
    )


def refuse_exceeded(limits: Iterable[LimitStanding]) -> None:
    """Refuse a launch beyond a limit that its project says must not be passed.

    Raises:
        LimitError: it would pass one, or how long it runs is not known.
    """
    held = [one for one in limits if one.on_exceed == "fail"]
    if any(one.adds_usd is None for one in held):
        raise LimitError(HOW_LONG_UNKNOWN, fix=BOUND_IT)
    unknown = next((one for one in held if one.open_unknown), None)
    if unknown is not None:
        raise LimitError(unknown.over_text, fix=end_those(unknown.open_unknown))
    over = [one for one in held if one.is_over]
    if over:
        tightest = min(over, key=lambda one: one.limit_usd - one.spent_usd - one.open_usd)
        raise LimitError("\n".join(one.over_text for one in over), fix=tightest.way_on)


def warnings(limits: Iterable[LimitStanding]) -> list[str]:
    """Return a sentence for every limit that is only warned of and is passed, or may be."""
    return [one.over_text for one in limits if one.on_exceed == "warn" and one.is_over is not False]


def open_unknown(what: str, runs: Sequence[str]) -> str:
    """Return the sentence about open launches that a limit cannot count at their worst."""
    listed = f"{', '.join(runs[:3])}{' …' if runs[3:] else ''}"
    return (
        f"Whether {what} is kept is not known: nothing bounds what {listed} may still cost, which"
        f" {'is' if len(runs) == 1 else 'are'} open."
    )


def end_those(runs: Sequence[str]) -> str:
    """Return what to do about open launches that nothing bounds."""
    return (
        f"end what nothing bounds, as with `gpuplan stop {runs[0]}`; `gpuplan resume {runs[0]}"
        " --max-cost USD` then lets it go on within a bound."
    )


def month_of(at: datetime) -> str:
    """Return the month of a time, `2026-11` (UTC)."""
    return f"{at.astimezone(UTC):%Y-%m}"


def spent_within(record: LaunchRecord, month: str | None, *, now: datetime) -> Decimal:
    """Return what a launch has cost in a month; None: in all."""
    if month is None:
        return spent_usd(record, now=now)
    return spent_in_usd(record, month, now=now)


def may_still_cost_usd(record: LaunchRecord, month: str | None, *, now: datetime) -> Decimal:
    """Return what a launch may cost at worst beyond what it is known to have; 0 for one that ended.

    Of one that the user closed as its SkyPilot is gone, in the month of that: they looked then.
    """
    closed_at = closed_unknown_at(record)
    if closed_at is not None and month is not None and month_of(closed_at) != month:
        return ZERO
    return committed_usd(record, now=now) - spent_usd(record, now=now)


def _usd(usd: Decimal) -> str:
    return f"${usd:,.2f}"
