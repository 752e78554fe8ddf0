"""What one run costs when it takes place, where a project says how prices of machines move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from ..cost.run_cost import UNIT
from ..cost.tax import TAX
from .ledger import Books
from .money import NOTHING, cents
from .planned import PlannedRuns, RunCostOf
from .project.months import shares_by_month
from .trend import trend_of

Shares = Sequence[tuple[Decimal, Decimal]]
"""The trend of a month, and the share of runs in it, of every month in which they take place."""


def at_mean_price(books: Books) -> tuple[PlannedRuns, ...]:
    """Return planned runs at the mean price of their months, as the ledger has all of them."""
    return _moved(books, _mean)


def at_dearest_price(books: Books) -> tuple[PlannedRuns, ...]:
    """Return planned runs at the price of the dearest of their months, for a limit of each run."""
    return _moved(books, lambda found: max(trend for trend, _ in found))


def _moved(books: Books, trend_from: Callable[[Shares], Decimal]) -> tuple[PlannedRuns, ...]:
    project = books.project
    if not project.price_trend:
        return books.planned
    found: dict[str, list[tuple[Decimal, Decimal]]] = {}
    for span in books.spans():
        found.setdefault(span.of.name, []).extend(
            (trend_of(project, month), Decimal(share))
            for month, share in shares_by_month(project.start, span.begin_h, span.end_h)
            if share
        )
    trends = {name: trend_from(shares) for name, shares in found.items()}
    return tuple(
        replace(
            one, options={key: _at(cost, trends[one.name]) for key, cost in one.options.items()}
        )
        for one in books.planned
    )


def _mean(shares: Shares) -> Decimal:
    whole = sum((share for _, share in shares), NOTHING)
    return sum((trend * share for trend, share in shares), NOTHING) / whole


def _at(cost: RunCostOf, trend: Decimal) -> RunCostOf:
    """Return a cost at a trend of prices, rounded as the ledger's rows are, tax after its net.

    What is signed or paid does not move.
    """
    if cost.is_price_agreed or not cost.usd or trend == 1:
        return cost
    machines = (line for line in cost.lines if line.unit == UNIT)
    exact = sum((Decimal(one.quantity) * one.unit_usd for one in machines), NOTHING)
    rate = next((line.unit_usd for line in cost.lines if line.name == TAX), NOTHING)
    net = cents(exact * trend)
    usd = net + cents(net * rate)
    ends = {"usd_low": cost.usd_low, "usd_high": cost.usd_high}
    moved = {
        name: None if end is None else cents(end * usd / cost.usd) for name, end in ends.items()
    }
    return replace(cost, usd=usd, **moved)
