"""What of a project has no known price: it is in no sum, and each of its sums is the least then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ..cost.run_cost import UNIT
from .attempts import hours_expected, times_paid
from .fixed_rows import egress_price, storage_months, storage_price
from .ledger import Books
from .money import NOTHING, quantum
from .planned import OpenLine
from .project.months import Month, shares_by_month
from .report.limit_rows import no_price_of
from .report.rows import EntryKind, LedgerLine
from .schedule import Span

MACHINES = "machines"
"""The line of an experiment whose machines have no price."""


@dataclass(frozen=True, kw_only=True)
class Unpriced:
    """Runs of an experiment or a line of the project without a price, or with one of a part."""

    name: str
    owner: str | None
    """Who answers for it."""
    is_of_runs: bool = False
    """Whether it is an experiment."""
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


def open_lines(books: Books) -> tuple[LedgerLine, ...]:
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
    project = books.project
    for one in books.planned:
        cost = one.chosen(books.option)
        lines = tuple(line.name for line in cost.open_lines)
        if cost.usd is None:
            yield Unpriced(name=one.name, owner=one.spec.owner, is_of_runs=True)
        elif lines:
            yield Unpriced(
                name=one.name,
                owner=one.spec.owner,
                is_of_runs=True,
                is_in_part=True,
                lines=lines,
            )
    for kept in project.storage:
        if kept.gb and storage_price(kept) is None:
            yield Unpriced(name=kept.name, owner=project.owner)
    for sent in project.egress:
        if sent.gb and egress_price(sent) is None:
            yield Unpriced(name=sent.name, owner=project.owner)
    for idle, price in zip(project.idle, books.idle, strict=False):
        if price.usd_per_hour is None:
            yield Unpriced(name=idle.name, owner=idle.owner or project.owner)


def _of_runs(books: Books) -> Iterator[LedgerLine]:
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
) -> Iterator[LedgerLine]:
    """Yield a line of one occurrence of runs in each of the months that these take."""
    one, cost = span.of, span.of.chosen(books.option)
    for month, share in shares_by_month(books.project.start, span.begin_h, span.end_h):
        yield LedgerLine(
            month=month,
            experiment=one.name,
            stage=one.spec.stage,
            owner=one.spec.owner,
            provider=cost.provider,
            region=cost.region,
            sku=cost.sku,
            accelerator=cost.accelerator,
            kind=line.kind,
            name=line.name,
            quantity=quantum(line.quantity * times * share),
            unit=line.unit,
        )


def _of_project(books: Books) -> Iterator[LedgerLine]:
    project = books.project
    for kept in project.storage:
        if kept.gb and storage_price(kept) is None:
            for month in storage_months(kept, project):
                place = (kept.provider, kept.region, project.owner)
                yield _line(month, "storage", kept.name, kept.gb, "GB-month", *place)
    for sent in project.egress:
        if sent.gb and egress_price(sent) is None:
            place = (sent.provider, sent.region, project.owner)
            yield _line(sent.month or project.end, "egress", sent.name, sent.gb, "GB", *place)
    for idle, price in zip(project.idle, books.idle, strict=False):
        if price.usd_per_hour is None:
            hours = idle.nodes * idle.hours_per_month
            place = (idle.provider, price.region, idle.owner or project.owner)
            for i in range(project.months):
                month = project.start.plus(i)
                line = _line(month, "idle", idle.name, hours, UNIT, *place)
                machine = {"sku": f"{idle.instance} on-demand", "accelerator": price.accelerator}
                yield line.model_copy(update=machine)


def _line(
    month: Month,
    kind: EntryKind,
    name: str,
    quantity: float,
    unit: str,
    provider: str | None,
    region: str | None,
    owner: str | None,
) -> LedgerLine:
    """Return a line that belongs to no experiment."""
    return LedgerLine(
        month=month,
        experiment=None,
        stage=None,
        owner=owner,
        provider=provider,
        region=region,
        sku=None,
        accelerator=None,
        kind=kind,
        name=name,
        quantity=quantum(quantity),
        unit=unit,
    )
