"""How the prices of rented machines move over a project, as its file says."""

from __future__ import annotations

from decimal import Decimal

from ...catalog.units import MONTHS_PER_YEAR
from .project.months import Month
from .project.project import Project


def trend_of(project: Project, month: Month) -> Decimal:
    """Return a price of a month over that of the project's first month.

    Of machines on demand and on the spot market alone: what is signed or paid does not move.
    """
    if not project.price_trend:
        return Decimal(1)
    years = month.since(project.start) / MONTHS_PER_YEAR
    return Decimal((1 + project.price_trend) ** years)
