"""What may be spent by a project, an owner, or in a month, over all launches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from ...catalog.errors import LimitError
from ...catalog.text.same_name import is_same_name
from .accounting import ZERO, is_unbounded, spent_usd
from .launch_record import LaunchRecord
from .project_limits import (
    BOUND_IT,
    HOW_LONG_UNKNOWN,
    ProjectFile,
    end_those,
    may_still_cost_usd,
    month_of,
    open_unknown,
    refuse_exceeded,
    spent_within,
    standings,
)


@dataclass(frozen=True, kw_only=True)
class SpendingLimits:
    """What may be spent, in dollars; None limits nothing."""

    project_usd: Decimal | None = None
    owner_usd: Decimal | None = None
    month_usd: Decimal | None = None
    """Limit on what all launches cost in this calendar month (UTC)."""
    file: ProjectFile | None = None
    """The project's file, whose own limits hold too."""

    @property
    def any(self) -> bool:
        """Return whether a launch may be refused for a limit."""
        own = (self.project_usd, self.owner_usd, self.month_usd)
        return own != (None, None, None) or (self.file is not None and self.file.refuses)


def refuse_beyond(
    wanted: LaunchRecord, others: Iterable[LaunchRecord], limits: SpendingLimits, *, now: datetime
) -> None:
    """Refuse a launch whose worst case would pass a limit, with what is committed already.

    Raises:
        LimitError: it would, or the worst case of it or of an open launch is not known.
    """
    if not limits.any:
        return
    known = [one for one in others if one.run != wanted.run]
    if limits.file is not None:
        refuse_exceeded(standings(wanted, known, limits.file, now=now))
    scopes = _scopes(wanted, known, limits, month_of(now))
    if scopes and wanted.reserved_usd is None:
        raise LimitError(HOW_LONG_UNKNOWN, fix=BOUND_IT)
    for scope, name, limit, counted in scopes:
        unbounded = [one.run for one in counted if is_unbounded(one)]
        if unbounded:
            raise LimitError(open_unknown(f"{scope} {name}", unbounded), fix=end_those(unbounded))
        month = name if scope == "month" else None

        spent = sum((spent_within(one, month, now=now) for one in counted), ZERO)
        may_cost = sum((may_still_cost_usd(one, month, now=now) for one in counted), ZERO)
        committed = spent + may_cost
        adds = max(ZERO, (wanted.reserved_usd or ZERO) - spent_usd(wanted, now=now))
        reserved = spent_within(wanted, month, now=now) + adds
        if committed + reserved > limit:
            open_runs = sum(one.is_open for one in counted)
            raise LimitError(
                f"At worst this costs ${reserved:,.2f}; {scope} {name} has committed"
                f" ${committed:,.2f} of its ${limit:,.2f} ({open_runs} still open, counted at"
                " their worst).",
                fix=f"allow less with --max-cost, end what is open (`gpuplan status`), or raise"
                f" --{scope}-limit.",
            )


def _scopes(
    wanted: LaunchRecord, known: list[LaunchRecord], limits: SpendingLimits, month: str
) -> list[tuple[str, str, Decimal, list[LaunchRecord]]]:
    """Return what is limited, the name of it, the limit, and the launches that count."""
    scopes = (
        (
            "project",
            wanted.project,
            limits.project_usd,
            [one for one in known if is_same_name(one.project, wanted.project)],
        ),
        (
            "owner",
            wanted.owner,
            limits.owner_usd,
            [one for one in known if is_same_name(one.owner, wanted.owner)],
        ),
        ("month", month, limits.month_usd, known),
    )
    return [
        (scope, name, limit, counted) for scope, name, limit, counted in scopes if limit is not None
    ]
