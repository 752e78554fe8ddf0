"""Accelerators that a project needs over time, by kind and month."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .attempts import hours_expected
from .ledger import Books
from .project.months import Month, hours_until
from .report.rows import AcceleratorUse
from .schedule import Span


@dataclass(frozen=True, kw_only=True)
class _Use:
    """Accelerators of one kind over a span of time, in hours from the begin of the project."""

    begin_h: float
    end_h: float
    count: int
    """At the same time."""
    hours: float
    """Accelerator-hours in it."""


def accelerator_use(books: Books, months: Sequence[Month]) -> tuple[AcceleratorUse, ...]:
    """Return how many accelerators of each kind every month needs; months without are left out."""
    by_kind: dict[str, list[_Use]] = {}
    for span in books.spans():
        cost = span.of.chosen(books.option)
        by_kind.setdefault(cost.accelerator, []).append(_use(span, books))
    found: list[AcceleratorUse] = []
    start = books.project.start
    for month in months:
        first_h = hours_until(start, month)
        last_h = first_h + month.hours
        for kind, uses in sorted(by_kind.items()):
            hours = sum(_hours_within(one, first_h, last_h) for one in uses)
            if hours > 0:
                peak = _peak(uses, first_h, last_h)
                found.append(
                    AcceleratorUse(
                        month=month,
                        accelerator=kind,
                        hours=hours,
                        peak=peak,
                        mean=hours / month.hours,
                    )
                )
    return tuple(found)


def accelerator_hours(span: Span, books: Books) -> float:
    """Return the accelerator-hours of one occurrence of runs."""
    cost = span.of.chosen(books.option)
    return hours_expected(span.of, books.option) * cost.accelerators


def _use(span: Span, books: Books) -> _Use:
    cost = span.of.chosen(books.option)
    return _Use(
        begin_h=span.begin_h,
        end_h=span.end_h,
        count=span.at_once * cost.accelerators,
        hours=accelerator_hours(span, books),
    )


def _hours_within(use: _Use, first_h: float, last_h: float) -> float:
    length = use.end_h - use.begin_h
    inside = min(use.end_h, last_h) - max(use.begin_h, first_h)
    return use.hours * inside / length if inside > 0 and length > 0 else 0.0


def _peak(uses: Sequence[_Use], first_h: float, last_h: float) -> int:
    """Return the most accelerators at the same time within a month."""
    moments = [max(one.begin_h, first_h) for one in uses if one.begin_h < last_h]
    return max(
        (
            sum(one.count for one in uses if one.begin_h <= at < one.end_h)
            for at in moments
            if at < last_h
        ),
        default=0,
    )
