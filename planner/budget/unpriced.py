"""Machines of a project whose price no source states: they are in no sum of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .ledger import Books
from .report.rows import no_price_of


@dataclass(frozen=True, kw_only=True)
class Unpriced:
    """Runs of an experiment, or an idle machine, without a price."""

    name: str
    owner: str | None
    """Who answers for it."""
    is_experiment: bool


def unpriced(books: Books) -> tuple[Unpriced, ...]:
    """Return what of a project has no price, in the order of its file."""
    return tuple(_found(books))


def unpriced_text(found: Sequence[Unpriced]) -> Iterator[str]:
    """Yield the sentence that a first page has on them; none where everything has a price."""
    if found:
        known = no_price_of([one.name for one in found])
        which = "it is" if len(found) == 1 else "they are"
        yield f"{known[0].upper()}{known[1:]}: {which} in no sum, and the project costs more."


def _found(books: Books) -> Iterator[Unpriced]:
    for one in books.planned:
        if one.chosen(books.option).usd is None:
            yield Unpriced(name=one.name, owner=one.spec.owner, is_experiment=True)
    for idle, price in zip(books.project.idle, books.idle, strict=False):
        if price.usd_per_hour is None:
            owner = idle.owner or books.project.owner
            yield Unpriced(name=idle.name, owner=owner, is_experiment=False)
