"""What changed between two budget reports, and why: causes that add up to the difference.

The money of an experiment is the product of what stands below; each factor is replaced by that of
the later report, one after another, and what the product changes by is what that cause is worth:

    runs x (start + work of a run x FLOPs of the work x hours of a FLOP) x price of an hour x rest

A sequence makes the causes add up exactly; in another order each would take another share of what
they change together. Each is rounded to the cent, and the largest takes what is left by rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from ..money import NOTHING, cents
from ..report.report import BudgetReport
from ..report.rows import LedgerLine
from ..unpriced import open_amounts
from . import words
from .causes import Cause, CauseKind, Difference, ExperimentDifference, KindSum, Side
from .factors import Account, accounts, replaced

CENT = Decimal("0.01")
"""What two roundings may differ by."""


def difference(
    before: BudgetReport, after: BudgetReport, *, names: tuple[str, str] = ("before", "after")
) -> Difference:
    """Return what changed from one report to another, with causes that add up to the cent.

    Args:
        before: the earlier report.
        after: the later report.
        names: what each was asked for as.
    """
    unknown = _not_compared(before, after)
    experiments = _experiments(before, after, unknown)
    project = (*_fixed_lines(before, after, unknown), *_contingency(before, after))
    causes = [*(cause for one in experiments for cause in one.causes), *project]
    usd = after.budget_usd - before.budget_usd
    share = float(usd / before.budget_usd) if before.budget_usd else None
    return Difference(
        headline=_headline(before, after, causes, unknown),
        before=_side(before, names[0]),
        after=_side(after, names[1]),
        difference_usd=usd,
        not_compared=unknown,
        share=share,
        experiments=tuple(sorted(experiments, key=lambda one: -abs(one.difference_usd))),
        project=project,
        by_kind=_by_kind(causes),
    )


def _side(report: BudgetReport, name: str) -> Side:
    return Side(
        name=name,
        gpuplan_version=report.gpuplan_version,
        generated_at=report.generated_at,
        total_usd=report.total.usd,
        contingency_usd=report.contingency_usd,
        budget_usd=report.budget_usd,
        p90_usd=report.total.p90_usd,
        accelerator_hours=report.accelerator_hours,
        unpriced=_unpriced(report),
        in_part=report.in_part,
    )


def _unpriced(report: BudgetReport) -> tuple[str, ...]:
    """Return what has no price; a report of an older version says it in its rows alone."""
    rows = (row.name for row in report.experiments if row.run_usd is None)
    found = (name for name in rows if all(one.experiment != name for one in report.entries))
    return tuple(dict.fromkeys((*report.unpriced, *found)))


def _not_compared(before: BudgetReport, after: BudgetReport) -> tuple[str, ...]:
    """Return what the later report has no price of, and is not what it was without one."""
    old, new = ({row.name: row for row in one.experiments} for one in (before, after))

    def is_as_it_was(name: str) -> bool:
        amounts = [open_amounts(_open_lines(one, name)) for one in (before, after)]
        first, last = old.get(name), new.get(name)
        if first is None or last is None:
            return first is last and bool(amounts[0]) and amounts[0] == amounts[1]
        if all(amounts) and amounts[0] != amounts[1]:
            return False
        return (first.rent, first.run_hours, first.runs_expected) == (
            last.rent,
            last.run_hours,
            last.runs_expected,
        )

    known = (_unpriced(before), _unpriced(after)), (before.in_part, after.in_part)
    return tuple(
        name
        for earlier, later in known
        for name in later
        if name not in earlier or not is_as_it_was(name)
    )


def _open_lines(report: BudgetReport, name: str) -> list[LedgerLine]:
    """Return what of an experiment or a line has no price; nothing in an older report."""
    lines = report.open_lines
    return [one for one in lines if name == (one.experiment or one.name)]


def _headline(
    before: BudgetReport,
    after: BudgetReport,
    causes: Iterable[Cause],
    unknown: tuple[str, ...],
) -> str:
    """Return the first line; what cannot be compared is left out of both sides first."""
    gone = [one.usd for name, one in accounts(before).items() if name in unknown]
    gone += [usd for (_, name), usd in _fixed_sums(before).items() if name in unknown]
    gone_usd = sum(gone, NOTHING)
    gone_contingency_usd = cents(gone_usd * Decimal(repr(before.contingency_share)))
    told = [
        (one.usd + (gone_contingency_usd if one.kind == "contingency" else NOTHING), one.text)
        for one in causes
        if one.experiment is None or one.experiment not in unknown
    ]
    told = [one for one in told if abs(one[0]) > (CENT if unknown else NOTHING)]
    usd = sum((one[0] for one in told), NOTHING)
    before_usd = before.budget_usd - gone_usd - gone_contingency_usd
    share = float(usd / before_usd) if before_usd else None
    left_out = [{*_unpriced(one), *one.in_part} for one in (before, after)]
    is_at_most = bool(left_out[0] - left_out[1])
    said = words.headline(usd, share, told, before_usd, is_at_most=is_at_most)
    parts = [name for name in unknown if name in after.in_part]
    names = [name for name in unknown if name not in parts]
    return words.not_known(names, parts, said) if unknown else said


def _by_kind(causes: Iterable[Cause]) -> tuple[KindSum, ...]:
    sums: dict[CauseKind, Decimal] = {}
    for one in causes:
        sums[one.kind] = sums.get(one.kind, NOTHING) + one.usd
    found = [KindSum(kind=kind, usd=usd) for kind, usd in sums.items()]
    return tuple(sorted(found, key=lambda one: -abs(one.usd)))


def _experiments(
    before: BudgetReport, after: BudgetReport, unknown: tuple[str, ...]
) -> list[ExperimentDifference]:
    """Return the experiments that differ; those that are the same to the cent are left out."""
    old, new = accounts(before), accounts(after)
    found: list[ExperimentDifference] = []
    for name in dict.fromkeys((*new, *old)):
        first, last = old.get(name), new.get(name)
        causes = _causes(name, first, last)
        if causes or first is None or last is None or name in unknown:
            usd = (last.usd if last else NOTHING) - (first.usd if first else NOTHING)
            found.append(
                ExperimentDifference(
                    name=name,
                    is_new=first is None,
                    is_left_out=last is None,
                    before_usd=first.known_usd if first else None,
                    after_usd=last.known_usd if last else None,
                    difference_usd=usd,
                    causes=causes,
                )
            )
    return found


def _causes(name: str, old: Account | None, new: Account | None) -> tuple[Cause, ...]:
    """Return why the money of an experiment differs; nothing where it does not."""
    if old is None or new is None:
        found = old or new
        assert found is not None
        usd = found.usd if old is None else -found.usd
        text = words.scope(name, is_new=old is None)
        return (Cause(kind="scope", experiment=name, text=text, usd=usd),) if usd else ()
    if not (old.hours and new.hours and old.machine_usd and new.machine_usd):
        usd = new.usd - old.usd
        text = words.unpriced(name, was_known=bool(old.machine_usd))
        return (Cause(kind="price", experiment=name, text=text, usd=usd),) if usd else ()
    return _rounded(name, replaced(old, new), new.usd - old.usd)


def _rounded(
    name: str, found: Iterable[tuple[CauseKind, str, Decimal]], usd: Decimal
) -> tuple[Cause, ...]:
    """Return the causes to the cent; the largest takes what rounding leaves of the difference."""
    causes = [
        Cause(kind=kind, experiment=name, text=text, usd=usd_of_cause)
        for kind, text, exact in found
        if (usd_of_cause := cents(exact))
    ]
    left = usd - sum((one.usd for one in causes), NOTHING)
    if not left:
        return tuple(causes)
    if not causes:
        return (Cause(kind="other", experiment=name, text=words.rounding(name), usd=left),)
    largest = max(range(len(causes)), key=lambda i: abs(causes[i].usd))
    causes[largest] = causes[largest].model_copy(update={"usd": causes[largest].usd + left})
    return tuple(one for one in causes if one.usd)


def _fixed_lines(
    before: BudgetReport, after: BudgetReport, unknown: tuple[str, ...]
) -> list[Cause]:
    """Return a cause for each line of no experiment whose sum differs."""
    old, new = _fixed_sums(before), _fixed_sums(after)
    found: list[Cause] = []
    for key in dict.fromkeys((*new, *old)):
        first, last = old.get(key), new.get(key)
        usd = (last or NOTHING) - (first or NOTHING)
        if usd and key[1] in unknown:
            text = words.unpriced(key[1], was_known=True)
            found.append(Cause(kind="price", experiment=key[1], text=text, usd=usd))
        elif usd:
            text = words.fixed(key[1], first, last)
            found.append(Cause(kind="fixed", experiment=None, text=text, usd=usd))
    return found


def _fixed_sums(report: BudgetReport) -> dict[tuple[str, str], Decimal]:
    sums: dict[tuple[str, str], Decimal] = {}
    for one in report.entries:
        if one.experiment is None:
            key = one.kind, one.name
            sums[key] = sums.get(key, NOTHING) + one.usd
    return sums


def _contingency(before: BudgetReport, after: BudgetReport) -> list[Cause]:
    usd = after.contingency_usd - before.contingency_usd
    if not usd:
        return []
    text = words.contingency(before.contingency_share, after.contingency_share)
    return [Cause(kind="contingency", experiment=None, text=text, usd=usd)]
