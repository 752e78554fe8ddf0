"""Terms of years that must be signed for a project's prices, and are paid whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ...plan.payment import CommitmentUse
from ..ledger import Books, total_usd
from ..money import NOTHING, dollars
from ..planned import RunCostOf
from .rows import Entry

BESIDE = ("storage", "egress")
"""Kinds of rows that no term pays."""


@dataclass(frozen=True, kw_only=True)
class TermToSign:
    """A term of which a project is charged its share of use."""

    rent: str
    """Whose price it is."""
    years: float
    usd: Decimal
    """Of all of it, with tax."""
    used_usd: Decimal
    """What of it is in the sums."""

    @property
    def unused_usd(self) -> Decimal:
        """US dollars that must be paid beyond the sums, unless something else uses the term."""
        return max(NOTHING, self.usd - self.used_usd)

    @property
    def text(self) -> str:
        """What it means, in a sentence."""
        years = "1 year" if self.years == 1 else f"{self.years:g} years"
        return (
            f"The price of {self.rent} is had by a term of {years} that is not signed yet:"
            f" {dollars(self.usd)}, used or not. {dollars(self.used_usd)} of it is in these sums."
        )


def terms_to_sign(books: Books, entries: Sequence[Entry]) -> tuple[TermToSign, ...]:
    """Return the terms that nobody has signed yet, and whose unused rest is in no sum.

    Experiments one after another on the same machines share a term; runs at once take one each.

    Args:
        books: the project.
        entries: its ledger.
    """
    found: dict[str, list[tuple[Decimal, float, str]]] = {}
    for span in books.spans():
        cost = span.of.chosen(books.option)
        use = _unsigned(cost)
        if use is not None:
            found.setdefault(cost.rent, []).append(
                (use.usd * span.at_once, use.term_years, span.of.name)
            )
    return tuple(_terms(found, entries))


def _terms(
    found: dict[str, list[tuple[Decimal, float, str]]], entries: Sequence[Entry]
) -> Iterator[TermToSign]:
    for rent, uses in found.items():
        usd, years, _ = max(uses)
        names = {name for _, _, name in uses}
        rows = (row for row in entries if row.experiment in names and row.kind not in BESIDE)
        yield TermToSign(rent=rent, years=years, usd=usd, used_usd=total_usd(rows))


def _unsigned(cost: RunCostOf) -> CommitmentUse | None:
    use = None if cost.plan is None else cost.plan.commitment
    if use is None or use.unused_is_counted or use.block_days is not None:
        return None
    return None if use.nodes_held else use
