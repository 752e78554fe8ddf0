"""Which source of money pays what of a project, month by month."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_DOWN, Decimal

from ..cost.run_cost import CENT
from .money import NOTHING, cents
from .project.lines import Funding
from .project.months import Month
from .project.project import Project
from .report.rows import Entry, FundingRow

NEVER = date.max


@dataclass
class _Source:
    """A source of money while it is spent."""

    of: Funding
    left_usd: Decimal
    covers_usd: Decimal = NOTHING
    indirect_usd: Decimal = NOTHING

    def pays(self, entry: Entry) -> bool:
        """Whether it may pay a row: credits pay their provider; all pay until they expire."""
        in_time = self.of.expires is None or entry.month.first_day <= self.of.expires
        return in_time and self.of.provider in (None, entry.provider)

    def pay(self, usd: Decimal) -> Decimal:
        """Pay what is left for of an amount, with the institution's share; return what is paid."""
        rate = Decimal(str(self.of.indirect))
        # Of all that it covers, rounded once: rounded at every row, cents would be lost.
        covers_most_usd = (self.of.usd / (1 + rate)).quantize(CENT, rounding=ROUND_DOWN)
        paid_usd = min(usd, covers_most_usd - self.covers_usd)
        indirect_usd = cents((self.covers_usd + paid_usd) * rate) - self.indirect_usd
        indirect_usd = min(indirect_usd, self.left_usd - paid_usd)
        self.left_usd -= paid_usd + indirect_usd
        self.covers_usd += paid_usd
        self.indirect_usd += indirect_usd
        return paid_usd


def funding_rows(
    project: Project, entries: Sequence[Entry]
) -> tuple[tuple[FundingRow, ...], Decimal | None]:
    """Return what each source pays, and what none does; None where the project names none.

    Month by month, credits pay before other money, and what expires first before what lasts. Of a
    source with an indirect rate every dollar of cost takes 1 + rate dollars.
    """
    if not project.funding:
        return (), None
    sources = [_Source(one, one.usd) for one in project.funding]
    order = sorted(sources, key=lambda one: (one.of.kind != "credits", one.of.expires or NEVER))
    unpaid_usd = NOTHING
    for entry in sorted(entries, key=lambda row: row.month):
        open_usd = entry.usd
        for source in order:
            if open_usd > 0 and source.pays(entry):
                open_usd -= source.pay(open_usd)
        unpaid_usd += open_usd
    return tuple(_row(one, project.end) for one in sources), unpaid_usd


def _row(source: _Source, end: Month) -> FundingRow:
    of = source.of
    expires_within = of.expires is not None and of.expires <= end.last_day
    return FundingRow(
        name=of.name,
        kind=of.kind,
        usd=of.usd,
        covers_usd=source.covers_usd,
        indirect_usd=source.indirect_usd,
        left_usd=source.left_usd,
        expires=of.expires,
        lapses_usd=source.left_usd if expires_within else NOTHING,
    )
