"""What launches have cost, as rows of a budget report."""

from __future__ import annotations

from typing import Literal

from ....catalog.frozen import FrozenModel, Usd
from ..project.months import Month

MatchedBy = Literal["plan", "workload", "machines", "model"]


class SpentRow(FrozenModel):
    """What one launch of the project has cost."""

    launch: str
    """Id of the launch."""
    experiment: str | None
    """Of the project; None where it is outside the plan."""
    month: Month
    """Month of its begin."""
    usd: Usd
    """US dollars so far, as the account counts them."""
    usd_by_month: dict[str, Usd] = {}
    """The same in each month in which its machines ran; of an older report nothing: all of it is
    of `month`."""
    forecast_usd: Usd | None = None
    """Of an open launch: US dollars it is likely to cost in all, at least what it has; None of one
    that has ended."""
    planned_usd: Usd | None
    """What one run was planned with: nothing outside the plan; None where no price is known."""
    status: str
    """How it stands."""
    billed_usd: Usd | None = None
    """What the provider billed for it; None where no bill was imported."""
    matched_by: MatchedBy | None = None
    """How its experiment was found (`matching.py`); None outside the plan."""


class VarianceRow(FrozenModel):
    """The ended launches of an experiment against its plan; US dollars, None where not known."""

    experiment: str | None
    """Of the project; None for the launches of the project that are outside the plan."""
    launches: int
    """That have ended."""
    succeeded: int
    """Of them, those that came to their end."""
    runs: int
    """That are planned."""
    spent_usd: Usd
    """By those launches, as their account counts it."""
    billed_usd: Usd | None = None
    """By the providers; None where a launch has no bill."""
    planned_usd: Usd | None = None
    """For so many runs as succeeded, at most those that are planned."""
    difference_usd: Usd | None = None
    """Spent less planned: the sum of those below, where price and speed are known."""
    scope_usd: Usd | None = None
    """Runs beyond those that are planned."""
    failures_usd: Usd | None = None
    """Launches and attempts that came to nothing, less the failures that were planned."""
    price_usd: Usd | None = None
    """Another price of an hour."""
    speed_usd: Usd | None = None
    """Another number of hours: what is left, with those of `idle_usd` where that is not known."""
    idle_usd: Usd | None = None
    """Hours before the job began and after it ended, less the planned start of the machines."""
