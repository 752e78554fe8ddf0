"""What the money of an experiment is the product of, and how each factor is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from ...cost.run_cost import UNIT
from ..money import NOTHING
from ..report.report import BudgetReport
from ..report.rows import Entry, ExperimentRow
from . import words
from .causes import CauseKind


@dataclass(frozen=True, kw_only=True)
class Account:
    """An experiment with the rows of its ledger."""

    row: ExperimentRow
    entries: tuple[Entry, ...]
    version: str

    @property
    def usd(self) -> Decimal:
        """US dollars of all its rows."""
        return sum((one.usd for one in self.entries), NOTHING)

    @property
    def known_usd(self) -> Decimal | None:
        """The same; None where no source states a price."""
        return None if self.row.run_usd is None and not self.entries else self.usd

    @property
    def exact_usd(self) -> Decimal:
        """US dollars of all its rows, none of them rounded."""
        return sum((one.quantity * one.unit_usd for one in self.entries), NOTHING)

    @property
    def net_usd(self) -> Decimal:
        """The same without the rows of tax."""
        untaxed = (one for one in self.entries if one.kind != "tax")
        return sum((one.quantity * one.unit_usd for one in untaxed), NOTHING)

    @property
    def machine_usd(self) -> Decimal:
        """US dollars of its instance-hours, not rounded."""
        machines = (one for one in self.entries if one.unit == UNIT)
        return sum((one.quantity * one.unit_usd for one in machines), NOTHING)

    @property
    def hours(self) -> Decimal:
        """Instance-hours of all its runs."""
        return sum((one.quantity for one in self.entries if one.unit == UNIT), NOTHING)

    @property
    def start_hours(self) -> Decimal:
        """Instance-hours of the starts of all its runs."""
        starts = (one for one in self.entries if one.unit == UNIT and one.kind == "start-up")
        return sum((one.quantity for one in starts), NOTHING)

    @property
    def skus(self) -> frozenset[tuple[str | None, ...]]:
        """What is rented, how it is paid for, and where."""
        return frozenset((one.provider, one.region, one.sku) for one in self.entries if one.sku)

    @property
    def work(self) -> Decimal | None:
        """Samples of a run, or hours of a machine that is rented for so long."""
        if self.row.samples is not None:
            return _exact(self.row.samples)
        return None if self.row.plan_id is not None else _exact(self.row.run_hours)


def accounts(report: BudgetReport) -> dict[str, Account]:
    """Return every experiment of a report with its rows of the ledger, by name."""
    by_name: dict[str, list[Entry]] = {row.name: [] for row in report.experiments}
    for entry in report.entries:
        if entry.experiment is not None:
            by_name.setdefault(entry.experiment, []).append(entry)
    return {
        row.name: Account(row=row, entries=tuple(by_name[row.name]), version=report.gpuplan_version)
        for row in report.experiments
    }


def replaced(old: Account, new: Account) -> Iterator[tuple[CauseKind, str, Decimal]]:
    """Yield kind, words and US dollars of each factor that is replaced, in order."""
    now = Factors.of(old, old)
    for kind, changes, text in _steps(old, new):
        changed = replace(now, **changes)
        yield kind, text, changed.usd - now.usd
        now = changed


@dataclass(frozen=True, kw_only=True)
class Factors:
    """What the money of an experiment is the product of."""

    runs: Decimal
    """Runs' worth of work."""
    start_hours: Decimal
    """Instance-hours of the start of a run."""
    work: Decimal
    """Of a run, relative to that of the earlier report."""
    flops: Decimal
    """Of the same work, relative to those of the earlier report."""
    hours: Decimal
    """Instance-hours of the earlier report's work and FLOPs."""
    price: Decimal
    """US dollars of an instance-hour."""
    other: Decimal
    """All money before tax / money of machines."""
    tax: Decimal
    """All money / all money before tax."""

    @property
    def usd(self) -> Decimal:
        """US dollars: the product."""
        run_hours = self.start_hours + self.work * self.flops * self.hours
        return self.runs * run_hours * self.price * self.other * self.tax

    @classmethod
    def of(cls, one: Account, old: Account) -> Factors:
        """Return the factors of an account, its work and FLOPs relative to those of `old`."""
        runs = _exact(one.row.runs_expected)
        start_hours = one.start_hours / runs
        hours = one.hours / runs - start_hours
        work, flops = _work_ratio(old, one, hours), _flops_ratio(old, one)
        return cls(
            runs=runs,
            start_hours=start_hours,
            work=work,
            flops=flops,
            hours=hours / work / flops,
            price=one.machine_usd / one.hours,
            other=one.net_usd / one.machine_usd,
            tax=one.exact_usd / one.net_usd,
        )


def _steps(old: Account, new: Account) -> list[tuple[CauseKind, dict[str, Decimal], str]]:
    """Return what is replaced, in order: the kind of cause, the factors, and the words."""
    was, now = Factors.of(old, old), Factors.of(new, old)
    rows = old.row, new.row
    is_same_machine = old.skus == new.skus
    is_same_plan = is_same_machine and all(
        getattr(old.row, one) == getattr(new.row, one) for one in ("rent", "layout", "devices")
    )
    hours = {"hours": now.hours, "start_hours": now.start_hours}
    price = {"price": now.price}
    found: list[tuple[CauseKind, dict[str, Decimal], str]] = [
        ("runs", {"runs": now.runs}, words.runs(*rows)),
        ("work", {"work": now.work}, words.work(*rows)),
    ]
    if is_same_machine and now.flops != 1:
        # How long a FLOP takes, and how a model is best laid out, is part of what a model is.
        found.append(("model", {"flops": now.flops, **hours}, words.model(*rows)))
    elif is_same_plan:
        kind: CauseKind = "speed" if old.version == new.version else "software"
        ratio = float(_ratio(now.hours + now.start_hours, was.hours + was.start_hours))
        found.append((kind, hours, words.speed(*rows, ratio, old.version, new.version)))
    else:
        # Another machine has another price and another speed: only together do they say
        # what it costs to take it.
        found.append(("model", {"flops": now.flops}, words.model(*rows)))
        found.append(("plan", hours if is_same_machine else hours | price, words.plan(*rows)))
    found.append(("price", price, words.price(*rows, was.price, now.price)))
    found.append(("other", {"other": now.other}, words.other(new.row.name)))
    return [*found, ("other", {"tax": now.tax}, words.tax(new.row.name, was.tax, now.tax))]


def _work_ratio(old: Account, new: Account, hours: Decimal) -> Decimal:
    """Return the ratio of the work of a run; `hours` of one, start apart, is that of `new`.

    Reports that were written before the samples were in them say it in words alone: where those
    differ, the hours of a run stand for its work.
    """
    if old.work and new.work and (old.row.samples is None) == (new.row.samples is None):
        return _ratio(new.work, old.work)
    if old.row.work == new.row.work:
        return Decimal(1)
    return _ratio(hours, (old.hours - old.start_hours) / _exact(old.row.runs_expected))


def _flops_ratio(old: Account, new: Account) -> Decimal:
    first, last = old.row.flops_per_sample, new.row.flops_per_sample
    return _ratio(_exact(last), _exact(first)) if first and last else Decimal(1)


def _ratio(new: Decimal, old: Decimal) -> Decimal:
    """Return new / old; 1 where they are the same or one of them is nothing."""
    return new / old if new and old and new != old else Decimal(1)


def _exact(value: float) -> Decimal:
    return Decimal(repr(float(value)))
