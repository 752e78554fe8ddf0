"""What a table of the report is: columns of one kind of figure each, rows of bare values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from ..figures import NOTHING, AtLeast, Kind, Value, as_text, least


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    heading: str
    kind: Kind = "text"
    adds: bool = False
    """Whether its values add up to something: the last row is their sum."""
    is_name: bool = False
    """Whether it holds a name that the user chose, of any length."""
    may_be_absent: bool = False
    """Whether None is "there is none", such as a limit, and not "unknown"."""

    has_links: bool = False
    """Whether addresses in it are links: sources are ours, names are not."""

    def text(self, value: Value) -> str:
        """Return a value of it as text."""
        if value is None and self.may_be_absent:
            return NOTHING
        return as_text(value, self.kind)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its caption: the values are those of the report, not yet rounded or text."""

    id: str
    """Name within a page."""
    caption: str
    """What it shows, in a sentence without its full stop."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    has_total: bool = False
    """Whether a last row shows the sums of the columns that add up."""
    flagged: frozenset[int] = frozenset()
    """Numbers of the rows, from 0, that are over a limit."""

    def texts(self) -> list[list[str]]:
        """Return the cells of each row as text."""
        return [self._texts(row) for row in self.rows]

    def total_texts(self) -> list[str] | None:
        """Return the last row, with the sums, as text; None for a table without one."""
        if not self.has_total or not self.rows:
            return None
        return self._summed("Total", self.rows)

    def shortened(self, most: int) -> tuple[list[list[str]], list[str] | None]:
        """Return at most so many rows as text, and the sum of those left out, where there are."""
        if len(self.rows) <= most:
            return self.texts(), None
        left = self.rows[most:]
        kept = [self._texts(row) for row in self.rows[:most]]
        return kept, self._summed(f"{len(left):,} more", left)

    def _texts(self, row: Sequence[Value]) -> list[str]:
        return [column.text(value) for column, value in zip(self.columns, row, strict=True)]

    def _summed(self, label: str, rows: Sequence[Sequence[Value]]) -> list[str]:
        cells = [label]
        for index, column in enumerate(self.columns[1:], start=1):
            values = [row[index] for row in rows]
            cells.append(as_text(added(values), column.kind) if column.adds else "")
        return cells


def added(values: Sequence[Value]) -> Decimal | None:
    """Return the exact sum of numbers, the least where one is; None as soon as one is unknown."""
    total = Decimal(0)
    for value in values:
        if value is None or not isinstance(value, int | float | Decimal):
            return None
        total += Decimal(str(value))
    return least(total, any(isinstance(value, AtLeast) for value in values))


def without_empty(table: Table) -> Table:
    """Return the table without the columns that may be absent and are in every row."""
    kept = [
        index
        for index, column in enumerate(table.columns)
        if not column.may_be_absent or any(row[index] is not None for row in table.rows)
    ]
    return replace(
        table,
        columns=tuple(table.columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in table.rows),
    )
