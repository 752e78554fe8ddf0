"""What may be spent by a project, an owner, or in a month, over all launches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from ...catalog.errors import LimitError
from .accounting import ZERO, committed_usd, spent_usd
from .launch_record import LaunchRecord


@dataclass(frozen=True, kw_only=True)
class SpendingLimits:
    """What may be spent, in dollars; None limits nothing."""

    project_usd: Decimal | None = None
    owner_usd: Decimal | None = None
    month_usd: Decimal | None = None
    """Limit on all launches made in one calendar month (UTC)."""

    @property
    def any(self) -> bool:
        """Return whether anything is limited."""
        return (self.project_usd, self.owner_usd, self.month_usd) != (None, None, None)


def refuse_beyond(
    wanted: LaunchRecord, others: Iterable[LaunchRecord], limits: SpendingLimits, *, now: datetime
) -> None:
    """Refuse a launch whose worst case would pass a limit, with what is committed already.

    Raises:
        LimitError: it would, or its worst case is not known.
    """
    if not limits.any:
        return
    if wanted.reserved_usd is None:
        raise LimitError(
            "There is a limit on spending, and how long this job runs is not known.",
            fix="give --steps, --max-cost or --max-hours.",
        )
    known = [one for one in others if one.run != wanted.run]
    month = _month(wanted.created_at)
    scopes = (
        ("project", wanted.project, limits.project_usd, [r for r in known if _same(r, wanted)]),
        ("owner", wanted.owner, limits.owner_usd, [r for r in known if r.owner == wanted.owner]),
        ("month", month, limits.month_usd, [r for r in known if _month(r.created_at) == month]),
    )
    for scope, name, limit, counted in scopes:
        if limit is None:
            continue
        committed = sum((committed_usd(one, now=now) for one in counted), ZERO)
        already = spent_usd(wanted, now=now)
        if committed + max(wanted.reserved_usd, already) > limit:
            open_runs = sum(one.is_open for one in counted)
            raise LimitError(
                f"At worst this costs ${wanted.reserved_usd:,.2f}; {scope} {name} has committed"
                f" ${committed:,.2f} of its ${limit:,.2f} ({open_runs} still open, counted at"
                " their worst).",
                fix=f"allow less with --max-cost, end what is open (`gpuplan status`), or raise"
                f" --{scope}-limit.",
            )


def _same(record: LaunchRecord, wanted: LaunchRecord) -> bool:
    return record.project == wanted.project


def _month(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m}"
