"""Rent, reserve or buy: other ways of paying for the machines of a report's plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...plan.payment import WaysToPay
from ...plan.plan import Plan
from ..ledger import Books
from .rows import ExperimentRow, WayRow

WaysOf = Callable[[Plan], WaysToPay | None]
"""From a plan to its ways of paying; None for one that is not on demand."""


def no_ways(_plan: Plan) -> None:
    """Return nothing: no ways are known."""


def way_rows(
    books: Books, experiments: Sequence[ExperimentRow], ways_of: WaysOf
) -> tuple[WayRow, ...]:
    """Return the ways of paying for each machine that plans on demand have, in their order.

    Experiments on the same machines share their rows: what they need of them adds up.
    """
    used_hours = {row.name: row.accelerator_hours for row in experiments}
    found: dict[str, tuple[WaysToPay, list[str], float]] = {}
    for one in books.planned:
        cost = one.chosen(books.option)
        ways = None if cost.plan is None else ways_of(cost.plan)
        if ways is None or one.name not in used_hours:
            continue
        node_hours = used_hours[one.name] * cost.nodes / cost.accelerators
        kept, names, hours = found.get(cost.rent, (ways, [], 0.0))
        found[cost.rent] = kept, [*names, one.name], hours + node_hours
    return tuple(
        WayRow(rent=rent, experiments=tuple(names), node_hours=hours, way=way)
        for rent, (ways, names, hours) in found.items()
        for way in ways.ways
    )
