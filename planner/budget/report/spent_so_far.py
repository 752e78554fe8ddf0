"""What launches have cost, on the first page of a report, in its sums and against its limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from ....catalog.text.same_name import is_same_name
from ..limits import SpentOf, with_spent_of
from ..money import NOTHING, dollars
from .report import BudgetReport
from .rows import Sum


def with_spent_on_first_page(report: BudgetReport, spent: SpentOf) -> BudgetReport:
    """Return a report whose first page, months, owners and limits count what is spent.

    Args:
        report: as it was planned, with the rows of its launches.
        spent: what these have cost.
    """
    limits = with_spent_of(report.limits, spent)
    said = {report.so_far, *(one.over_text for one in report.limits)}
    first, *others = (line for line in report.summary if line not in said)
    so_far = _so_far(report, spent)
    over = [one.over_text for one in limits if one.is_over or one.is_unknown]
    return report.model_copy(
        update={
            "limits": limits,
            "by_month": _with(report.by_month, lambda name: spent.by_month.get(name)),
            "by_owner": _with(report.by_owner, lambda name: _of_owner(name, spent)),
            "so_far": so_far,
            "summary": (first, so_far, *over, *others),
        }
    )


def _so_far(report: BudgetReport, spent: SpentOf) -> str:
    count = len(report.spent)
    launches = "1 launch has" if count == 1 else f"{count:,} launches have"
    said = f"So far {launches} cost {dollars(spent.total_usd)}"
    known = [one.difference_usd for one in report.variances if one.difference_usd is not None]
    beyond = sum(known, NOTHING)
    if not known:
        return f"{said}, and none has ended."
    if not beyond:
        return f"{said}; those that have ended cost what was planned for them."
    less = "less" if beyond < 0 else "more"
    return f"{said}; those that have ended cost {dollars(abs(beyond))} {less} than was planned."


def _of_owner(name: str, spent: SpentOf) -> Decimal | None:
    usd = [usd for owner, usd in spent.by_owner.items() if is_same_name(owner, name)]
    return sum(usd, NOTHING) if usd else None


def _with(sums: Sequence[Sum], of: Callable[[str], Decimal | None]) -> tuple[Sum, ...]:
    return tuple(
        one if (usd := of(one.name)) is None else one.model_copy(update={"spent_usd": usd})
        for one in sums
    )
