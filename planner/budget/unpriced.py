"""What of a project has no known price: it is in no sum, and each of its sums is the least then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ...catalog.terms.storage import StorageItem, dearest_usd_per_gb
from ..cost.run_cost import UNIT
from ..cost.tax import tax_rate
from .attempts import hours_expected, times_paid
from .fixed_rows import rented_lines
from .ledger import Books, line_of_runs
from .money import NOTHING, quantum
from .planned import OpenLine
from .project.months import shares_by_month
from .report.limit_rows import no_price_of
from .report.open_rows import OpenLedgerLine
from .report.rows import EntryKind, LedgerLine
from .schedule import Span

MACHINES = "machines"
"""The line of an experiment whose machines have no price."""
ITEMS: Mapping[EntryKind, StorageItem] = {
    "storage": "object_storage_usd_per_gb_month",
    "egress": "internet_egress_usd_per_gb",
}
"""Kind of a line that belongs to no experiment → what of it has prices by the GB."""


@dataclass(frozen=True, kw_only=True)
class Unpriced:
    """Runs of an experiment or a line of the project without a price, or with one of a part."""

    name: str
    is_in_part: bool = False
    """Whether only a part of it has no price: it is in the sums, but for that."""
    lines: tuple[str, ...] = ()
    """Of what is known in part: the lines that have no price."""


def unpriced(books: Books) -> tuple[Unpriced, ...]:
    """Return what of a project has no price, in the order of its file."""
    return tuple(_found(books))


def unpriced_text(found: Sequence[Unpriced]) -> Iterator[str]:
    """Yield the sentences that a first page has on them; none where everything has a price."""
    whole = [one.name for one in found if not one.is_in_part]
    if whole:
        known = no_price_of(whole)
        which = "it is" if len(whole) == 1 else "they are"
        yield f"{known[0].upper()}{known[1:]}: {which} in no sum, and the project costs more."
    parts = [one for one in found if one.is_in_part]
    if parts:
        known = no_price_of([], [one.name for one in parts])
        lines = ", ".join(dict.fromkeys(line for one in parts for line in one.lines))
        yield f"{known[0].upper()}{known[1:]} ({lines}), and the project costs more than its sums."


def open_lines(books: Books) -> tuple[OpenLedgerLine, ...]:
    """Return what has no known price as lines of a ledger, by month and then as in its file."""
    found = [*_of_runs(books), *_of_project(books)]
    return tuple(sorted(found, key=lambda line: line.month))


def open_amounts(lines: Iterable[LedgerLine]) -> dict[tuple[str | None, ...], Decimal]:
    """Return how much there is of what has no known price, by whose and what it is."""
    found: dict[tuple[str | None, ...], Decimal] = {}
    for one in lines:
        key = (one.experiment, one.provider, one.region, one.sku, one.name, one.unit)
        found[key] = found.get(key, NOTHING) + one.quantity
    return found


def _found(books: Books) -> Iterator[Unpriced]:
    for one in books.planned:
        cost = one.chosen(books.option)
        lines = tuple(line.name for line in cost.open_lines)
        if cost.usd is None:
            yield Unpriced(name=one.name)
        elif lines:
            yield Unpriced(name=one.name, is_in_part=True, lines=lines)
    for name in dict.fromkeys(line.name for line in _of_project(books)):
        yield Unpriced(name=name)


def _of_runs(books: Books) -> Iterator[OpenLedgerLine]:
    for span in books.spans():
        cost = span.of.chosen(books.option)
        if cost.usd is None:
            hours = hours_expected(span.of, books.option) * cost.nodes
            line = OpenLine(kind="accelerators", name=MACHINES, quantity=hours, unit=UNIT)
            yield from _spread(span, line, books)
            continue
        for line in cost.open_lines:
            times = times_paid(span.of, line.name, books.option)
            yield from _spread(span, line, books, times=times)


def _spread(
    span: Span, line: OpenLine, books: Books, *, times: float = 1.0
) -> Iterator[OpenLedgerLine]:
    """Yield a line of one occurrence of runs in each of the months that these take."""
    one, cost = span.of, span.of.chosen(books.option)
    for month, share in shares_by_month(books.project.start, span.begin_h, span.end_h):
        quantity = quantum(line.quantity * times * share)
        found = line_of_runs(one, cost, month, line, quantity)
        yield OpenLedgerLine.of(found, line.dearest_unit_usd)


def _of_project(books: Books) -> Iterator[OpenLedgerLine]:
    for line, price in rented_lines(books.project, books.idle):
        if price is None and line.quantity:
            yield OpenLedgerLine.of(line, _dearest_unit_usd(line.kind, books.tax_percent))


def _dearest_unit_usd(kind: EntryKind, tax_percent: Decimal | None) -> Decimal | None:
    """Return the highest price that any seller states of a GB, with tax; None for machines."""
    item = ITEMS.get(kind)
    return (
        None if item is None else dearest_usd_per_gb(item) * (1 + tax_rate(tax_percent or NOTHING))
    )
