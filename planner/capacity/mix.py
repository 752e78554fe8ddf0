"""The cheapest mix of commitments of all lengths and of hours on demand, each begun when it pays.

Between two moments at which anything changes, t, so many nodes u_t are in use for l_t hours. Of
x_j nodes that are committed for the term j (begun at a moment, of a length), y_t on demand and
z_t committed ones without use,

    minimise    Σ_j price_j × hours_j × x_j + price on demand × Σ_t l_t × y_t
    enough      Σ_{j goes on in t} x_j + y_t - z_t = u_t

Each term goes on in moments that follow one another. Such a matrix is totally unimodular (Fulkerson
and Gross 1965, "Incidence matrices and interval graphs", Pacific J. Math. 15): the best corner of
the linear program has whole nodes, and HiGHS' simplex ends in a corner. Written as differences of
neighbouring rows, each variable stands in two.

Begins are the moments at which more nodes come into use, and those at which terms that begin so
end. No other is cheaper: terms that follow one another can be moved together, one way or the other,
at no cost until the first begins as more nodes come into use, or as another term ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ...catalog.units import HOURS_PER_DAY, HOURS_PER_YEAR
from ..budget.money import NOTHING
from ..cost.run_cost import CENT
from .commitments import Prices
from .order import INSTALL
from .place import Placed

if TYPE_CHECKING:
    from scipy.sparse import coo_array

Numbers = np.ndarray[Any, np.dtype[Any]]

MOST_BEGINS = 10_000
"""More are moved to the begin of their day."""
DECIMALS = 6
"""Of the hours of a moment: sums of the same terms in another order are the same moment."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """Nodes that are committed for one term."""

    begin_h: float
    years: Decimal
    nodes: int

    @property
    def end_h(self) -> float:
        """When it ends."""
        return round(self.begin_h + _hours(self.years), DECIMALS)

    def usd(self, usd_per_hour: Mapping[Decimal, Decimal]) -> Decimal:
        """Return what one of its nodes costs for all of it."""
        return self.years * HOURS_PER_YEAR * usd_per_hour[self.years]


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """Commitments of all lengths, and all else on demand."""

    committed: tuple[Term, ...]
    usd: Decimal
    used: float | None
    """Share of the committed node-hours that are used; None: none is committed."""


def cheapest_mix(uses: Sequence[Placed], prices: Prices, nodes: Sequence[int]) -> Mixed | str:
    """Return the mix that costs least; why it is not known where scipy is not there.

    Args:
        uses: when nodes are in use.
        prices: of a node.
        nodes: how many are, in each of the uses.
    """
    in_use = _changes(
        (at_h, change)
        for one, count in zip(uses, nodes, strict=True)
        for at_h, change in ((one.begin_h, count), (one.end_h, -count))
    )
    if not in_use:
        return Mixed(committed=(), usd=NOTHING, used=None)
    usd_per_hour = _cheapest(prices)
    begins = _begins(in_use, list(usd_per_hour))
    tried = [Term(begin_h=at_h, years=years, nodes=1) for years in usd_per_hour for at_h in begins]
    counts = _solved(in_use, tried, usd_per_hour, prices.on_demand_usd)
    if isinstance(counts, str):
        return counts
    chosen = [replace(one, nodes=count) for one, count in zip(tried, counts, strict=True) if count]
    return _priced(in_use, chosen, usd_per_hour, prices.on_demand_usd)


Changes = Mapping[float, int]
"""By how many nodes there are more, at each moment at which that changes, the first one first."""


def _changes(each: Iterable[tuple[float, int]]) -> Changes:
    found: dict[float, int] = {}
    for at_h, change in each:
        moment = round(at_h, DECIMALS)
        found[moment] = found.get(moment, 0) + change
    return {at_h: change for at_h, change in sorted(found.items()) if change}


def _cheapest(prices: Prices) -> dict[Decimal, Decimal]:
    """Return what an hour of a term costs by its years, of several prices the lowest."""
    found: dict[Decimal, Decimal] = {}
    for years, usd in prices.terms:
        found[years] = min(usd, found.get(years, usd))
    return found


def _begins(in_use: Changes, lengths: Sequence[Decimal]) -> list[float]:
    """Return the moments at which a term may begin."""
    last_h = max(in_use)
    sums, new = {0.0}, {0.0}
    while new:
        longer = {one + _hours(years) for one in new for years in lengths}
        new = {one for one in longer if one < last_h} - sums
        sums |= new
    rises = [at_h for at_h, change in in_use.items() if change > 0]
    found = {round(rise + one, DECIMALS) for rise in rises for one in sums}
    if len(found) > MOST_BEGINS:
        found = {at_h // HOURS_PER_DAY * HOURS_PER_DAY for at_h in found}
    return sorted(at_h for at_h in found if at_h < last_h)


def _solved(
    in_use: Changes,
    tried: Sequence[Term],
    usd_per_hour: Mapping[Decimal, Decimal],
    on_demand_usd: Decimal,
) -> list[int] | str:
    """Return how many nodes to commit for each of the terms."""
    try:
        from scipy.optimize import linprog
    except ImportError:
        return f"scipy, which finds it, is not installed ({INSTALL})"
    last_h = max(in_use)
    begins, ends = [one.begin_h for one in tried], [min(one.end_h, last_h) for one in tried]
    moments = np.array(sorted({*in_use, *begins, *ends}))
    rows = len(moments) - 1
    each = np.arange(rows)
    answer = linprog(
        np.concatenate(
            [
                [float(one.usd(usd_per_hour)) for one in tried],
                np.diff(moments) * float(on_demand_usd),
                np.zeros(rows),
            ]
        ),
        A_eq=_matrix(
            first=np.concatenate([np.searchsorted(moments, begins), each, each]),
            after=np.concatenate([np.searchsorted(moments, ends), each + 1, each + 1]),
            sign=np.concatenate([np.ones(len(tried) + rows), -np.ones(rows)]),
            rows=rows,
        ),
        b_eq=[in_use.get(at_h, 0) for at_h in moments[:-1].tolist()],
        method="highs-ds",
    )
    if answer.x is None:
        return f"HiGHS did not find it ({answer.message})"
    return [round(float(count)) for count in answer.x[: len(tried)]]


def _matrix(*, first: Numbers, after: Numbers, sign: Numbers, rows: int) -> coo_array:
    """Return the constraints: each variable stands in the row of its begin and of its end.

    The last moment is the end of everything: what ends there stands in no row.
    """
    from scipy.sparse import coo_array

    columns = np.arange(len(first))
    inside = after < rows
    values = np.concatenate([sign, -sign[inside]])
    places = (
        np.concatenate([first, after[inside]]),
        np.concatenate([columns, columns[inside]]),
    )
    return coo_array((values, places), shape=(rows, len(first)))


def _priced(
    in_use: Changes,
    committed: Sequence[Term],
    usd_per_hour: Mapping[Decimal, Decimal],
    on_demand_usd: Decimal,
) -> Mixed:
    """Return what the terms and all else on demand cost, counted from whole nodes."""
    paid = _changes(
        (at_h, change)
        for one in committed
        for at_h, change in ((one.begin_h, one.nodes), (one.end_h, -one.nodes))
    )
    moments = sorted({*in_use, *paid})
    using = there = 0
    used_h = rented_h = 0.0
    for at_h, until_h in pairwise(moments):
        using += in_use.get(at_h, 0)
        there += paid.get(at_h, 0)
        used_h += min(using, there) * (until_h - at_h)
        rented_h += max(0, using - there) * (until_h - at_h)
    paid_h = sum(one.nodes * _hours(one.years) for one in committed)
    terms_usd = sum((one.nodes * one.usd(usd_per_hour) for one in committed), NOTHING)
    rented_usd = Decimal(str(round(rented_h, DECIMALS))) * on_demand_usd
    return Mixed(
        committed=tuple(sorted(committed, key=lambda one: (one.begin_h, -one.years))),
        usd=(terms_usd + rented_usd).quantize(CENT),
        used=used_h / paid_h if committed else None,
    )


def _hours(years: Decimal) -> float:
    return float(years * HOURS_PER_YEAR)
