"""What a project pays for beside its runs, who pays, and how much it may be."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, model_validator

from .fields import Count, Dollars, Share, WholeCount, Written, written_as
from .months import Month
from .on_exceed import OnExceed

FundingKind = Literal["grant", "credits", "budget"]


MOST_PER_USD = 10**9
MOST_USD_PER_GB = 10**6
MOST_GB = 1e12
"""A thousand exabytes."""
MOST_MONTH_HOURS = 744
"""Hours of a month of 31 days."""


class OwnRate(Written):
    """A currency in which amounts are shown beside US dollars."""

    code: str = Field(pattern="^[A-Z]{3}$")
    """ISO 4217: EUR, GBP …"""
    per_usd: Annotated[Decimal, written_as("0.86")] = Field(gt=0, le=MOST_PER_USD)
    """Units of it that one US dollar buys."""
    date: date
    """The day of that rate."""


class Funding(Written):
    """Money that the project may spend."""

    name: str
    """As the report calls it."""
    usd: Dollars
    """US dollars of it that are left."""
    kind: FundingKind = "budget"
    """A grant, credits of one provider, or a budget."""
    provider: str | None = None
    """Of credits: the provider that takes them; not given: any cost is paid from it."""
    expires: date | None = None
    """The last day on which it pays."""
    indirect: Share = 0.0
    """Share that the institution adds to each dollar of cost, and takes from the grant too."""

    @model_validator(mode="after")
    def _credits_have_a_provider(self) -> Funding:
        if self.kind == "credits" and self.provider is None:
            raise ValueError("credits are of one provider; add `provider: aws`.")
        return self


class Storage(Written):
    """Data that is kept over months."""

    name: str
    gb: Count = Field(le=MOST_GB)
    """GB as sellers count them, 10^9 bytes."""
    usd_per_gb_month: Annotated[Decimal, written_as("0.023")] | None = Field(
        default=None, ge=0, le=MOST_USD_PER_GB
    )
    """Not given: the list price of `provider` in `region`, unknown where there is none."""
    provider: str | None = None
    region: str | None = None
    start: Month | None = None
    """First month; default: the project's."""
    months: WholeCount | None = None
    """Default: to the end of the project."""


class Egress(Written):
    """Data that leaves a cloud."""

    name: str
    gb: Count = Field(le=MOST_GB)
    usd_per_gb: Annotated[Decimal, written_as("0.09")] | None = Field(
        default=None, ge=0, le=MOST_USD_PER_GB
    )
    """Not given: the list price of `provider` in `region`, unknown where there is none."""
    provider: str | None = None
    region: str | None = None
    month: Month | None = None
    """Default: the project's last."""


class Idle(Written):
    """Machines that are rented and do nothing: development machines left on, a node kept warm."""

    name: str = "idle machines"
    provider: str
    instance: str
    region: str | None = None
    nodes: WholeCount = 1
    hours_per_month: Count
    """Of each node."""
    owner: str | None = None

    @model_validator(mode="after")
    def _fits_into_a_month(self) -> Idle:
        if self.hours_per_month > MOST_MONTH_HOURS:
            raise ValueError(
                f"hours_per_month is {self.hours_per_month:g}, and a month has at most"
                f" {MOST_MONTH_HOURS}; give `nodes` for several machines."
            )
        return self


class Extra(Written):
    """A fixed line: licences, people, a workstation."""

    name: str
    usd: Dollars
    """Of each month, or once."""
    month: Month | None = None
    """Once, in this month; not given: every month."""
    owner: str | None = None
    kind: Literal["people", "other"] = "other"


class BudgetLimits(Written):
    """The most that may be spent."""

    run: Dollars | None = None
    """Of one run."""
    month: Dollars | None = None
    """In any month."""
    total: Dollars | None = None
    """Of the project, contingency included."""
    owners: dict[str, Dollars] = {}
    """Of one owner."""
    on_exceed: OnExceed = "warn"
    """Whether the report then only says so, or ends with exit code 4."""
