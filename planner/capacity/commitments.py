"""Which machines of a project are worth a commitment: those that it uses often enough.

The k-th node of a type is in use while k or more are. Committed it costs the term's price for every
hour of the term, on demand its own price for the hours in which it is used. So it pays where

    hours with k or more in use ÷ hours of the term  ≥  price committed ÷ price on demand

which is the utilisation of break-even. Since a node of a higher number is used less, the cheapest
mix commits the first so many nodes and rents the others, term after term from the project's begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from ...catalog.units import HOURS_PER_YEAR
from ..budget.money import NOTHING
from ..cost.run_cost import CENT
from .jobs import Job
from .place import Placed


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What a node of one type costs an hour, US dollars with the pricebook's tax."""

    on_demand_usd: Decimal
    terms: tuple[tuple[Decimal, Decimal], ...]
    """Years of a commitment, and its price for every hour of them."""


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Nodes that are committed for terms of one length, and all others on demand."""

    term_years: Decimal
    break_even: Decimal
    """Share of a term from which on a commitment pays."""
    committed: tuple[tuple[float, int], ...]
    """Begin of each term in hours, with its nodes; terms without are left out."""
    usd: Decimal
    used: float
    """Share of the committed node-hours that are used; without any, of the term of the node that is
    used most."""


def on_demand_usd(uses: Sequence[Placed], prices: Prices, nodes: Sequence[int]) -> Decimal:
    """Return what all hours cost on demand: uses with the nodes of each."""
    hours = sum((one.end_h - one.begin_h) * count for one, count in zip(uses, nodes, strict=True))
    return (_hours(hours) * prices.on_demand_usd).quantize(CENT)


def mixes(uses: Sequence[Placed], prices: Prices, nodes: Sequence[int]) -> list[Mix]:
    """Return the cheapest mix for each length of a term, the cheapest of all first.

    Args:
        uses: when nodes are in use.
        prices: of a node.
        nodes: how many are, in each of the uses.
    """
    found = [_mix(uses, prices, nodes, years, usd) for years, usd in prices.terms]
    return sorted(found, key=lambda one: one.usd)


def machine_jobs(jobs: Sequence[Job], placed: Sequence[Placed]) -> dict[str, list[int]]:
    """Return the numbers of the jobs on each type of machine that is rented on demand."""
    found: dict[str, list[int]] = {}
    for number, job in enumerate(jobs):
        if job.machine is not None and placed[number].end_h > placed[number].begin_h:
            found.setdefault(job.machine, []).append(number)
    return found


def _mix(
    uses: Sequence[Placed], prices: Prices, nodes: Sequence[int], years: Decimal, usd: Decimal
) -> Mix:
    term_h = float(years * HOURS_PER_YEAR)
    share = usd / prices.on_demand_usd
    total, used_h, most_h = NOTHING, 0.0, 0.0
    committed: list[tuple[float, int]] = []
    begin_h, last_h = 0.0, max(one.end_h for one in uses)
    while begin_h < last_h:
        hours = _hours_by_node(uses, nodes, begin_h, begin_h + term_h)
        paying = sum(one >= term_h * float(share) for one in hours)
        if paying:
            committed.append((begin_h, paying))
        used_h += sum(hours[:paying])
        most_h = max([most_h, *hours])
        total += paying * _hours(term_h) * usd + _hours(sum(hours[paying:])) * prices.on_demand_usd
        begin_h += term_h
    count = sum(one for _, one in committed)
    return Mix(
        term_years=years,
        break_even=share,
        committed=tuple(committed),
        usd=total.quantize(CENT),
        used=used_h / (count * term_h) if count else most_h / term_h,
    )


def _hours_by_node(
    uses: Sequence[Placed], nodes: Sequence[int], first_h: float, last_h: float
) -> list[float]:
    """Return how long the first node is in use, the second and so on, between two moments."""
    changes = sorted(
        change
        for one, count in zip(uses, nodes, strict=True)
        if one.begin_h < last_h and one.end_h > first_h
        for change in ((max(one.begin_h, first_h), count), (min(one.end_h, last_h), -count))
    )
    exactly: dict[int, float] = {}
    busy, since_h = 0, first_h
    for at_h, change in changes:
        exactly[busy] = exactly.get(busy, 0.0) + at_h - since_h
        busy, since_h = busy + change, at_h
    most = max(exactly, default=0)
    return [sum(h for count, h in exactly.items() if count >= node) for node in range(1, most + 1)]


def _hours(hours: float) -> Decimal:
    return Decimal(str(round(hours, 6)))
