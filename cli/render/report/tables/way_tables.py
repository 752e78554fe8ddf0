"""Rent, reserve or buy: what an hour of use costs by how much of the time a machine is used."""

from __future__ import annotations

from .....planner.budget.report.report import BudgetReport
from .....planner.plan.payment import BuyingWay
from .tables import Column, Table

BY_THE_HOUR = {"on-demand": "on demand", "spot": "on spot machines"}
USES = (0.1, 0.25, 0.5, 0.75, 1.0)


def ways_table(report: BudgetReport) -> Table:
    """Return every way of paying for each machine, along the share of hours that are used."""
    return Table(
        id="ways",
        caption="US dollars for an hour of use of one instance, by the share of hours in use",
        columns=(
            Column("Rented", is_name=True),
            Column("Experiments", is_name=True),
            Column("Instance-hours", "number"),
            Column("Paid", is_name=True),
            *(Column(f"{share * 100:.0f} % used", "unit_usd") for share in USES),
            Column("Pays above a use of", "share", may_be_absent=True),
            Column("Renting is dearer from month", "count", may_be_absent=True),
        ),
        rows=tuple(
            (
                row.rent,
                ", ".join(row.experiments),
                row.node_hours,
                way_text(row.way),
                *(_at(row.way, share) for share in USES),
                row.way.break_even_share,
                row.way.break_even_month,
            )
            for row in report.ways
        ),
    )


def way_text(way: BuyingWay) -> str:
    """Return a way of paying in words: "committed, 3 years", "bought: lab h100, 5 years"."""
    if way.term_years is None:
        return BY_THE_HOUR.get(way.way, way.way)
    years = f"{way.term_years:g} year{'' if way.term_years == 1 else 's'}"
    return f"bought: {way.name}, {years}" if way.way == "owned" else f"{way.way}, {years}"


def _at(way: BuyingWay, share: float) -> float | None:
    return next((one.usd_per_hour for one in way.by_use if one.share == share), None)
