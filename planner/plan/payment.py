"""How the machines of a plan are paid for: terms, other ways, credits, the user's currency.

Parts of the machine-readable contract, as those of `parts.py`: every key is always present, and
never renamed within a major version.
"""

from __future__ import annotations

from datetime import date
from typing import Literal

from ...catalog.frozen import FrozenModel, Usd
from ...catalog.vocabulary import Purchase

HourlyWay = Literal["spot", "on-demand", "spot-then-on-demand"]


class CommitmentUse(FrozenModel):
    """The term that a plan's machines are paid for, and what the job uses of it."""

    term_years: float
    """Years for which every hour is paid, used or not."""
    terms: int
    """Terms that the job takes, one after another."""
    usd: Usd
    """US dollars of these terms of all nodes, with tax."""
    used_share: float | None
    """Share of their hours that the job uses, from 0 to 1; None without an amount of work."""
    unused_usd: Usd | None
    """US dollars of the rest; None without an amount of work."""
    unused_is_counted: bool
    """Whether the dollars of the whole job hold that rest: where the term would be bought for this
    job alone. Else they are its share of use."""
    nodes_held: int | None
    """Instances that are reserved already; None where the commitment is not signed yet."""
    block_days: int | None = None
    """Days that are rented of a capacity block, all blocks of the job together, and paid on the
    first of them; None for a term of years."""
    further_usd: Usd | None = None
    """US dollars of more terms or blocks, on average over all runs, with tax: some take longer than
    those that the expected time fits into. They are in the job's dollars, and not in `usd`; None
    where nobody counts them."""


class UseCost(FrozenModel):
    """What an hour of use costs where only a share of all hours is used."""

    share: float
    """Of all hours, above 0 and up to 1."""
    usd_per_hour: float
    """US dollars for each hour of use of one node of the plan, before tax."""


class BuyingWay(FrozenModel):
    """One way of paying for the machines of a plan, beside renting them on demand."""

    way: Purchase
    """How they are paid for; "owned" by buying them."""
    term_years: float | None = None
    """Years of a commitment or a reservation, or of the life of bought hardware."""
    name: str | None = None
    """Of the user's own machine; None for machines of the plan's seller."""
    usd_per_hour: float | None
    """US dollars an hour of one node of the plan when every hour is used, before tax; None where no
    source states a price."""
    job_usd: Usd | None = None
    """US dollars of the job: its share of use; None without work or a price."""
    whole_usd: Usd | None = None
    """US dollars of the whole term of all nodes, or of buying them, before tax; None where they are
    paid by the hour."""
    by_use: tuple[UseCost, ...] = ()
    """The same hour where 10, 25, 50, 75 and 100 % of all hours are used: what is paid by the hour
    costs the same, a term or a machine of one's own is paid in the other hours too; empty without a
    price."""
    break_even_share: float | None = None
    """Share of all hours, from 0 to 1 or above, from which it costs less than on demand."""
    break_even_month: int | None = None
    """The month in which renting on demand, every hour used, has cost more than all of it; None
    where that is beyond its years, or where it is paid by the hour."""


class WaysToPay(FrozenModel):
    """The ways of paying for the machines of one plan, side by side."""

    plan_id: str
    """Of the plan."""
    ways: tuple[BuyingWay, ...]
    """On demand first; a price that is not known is listed too."""


class DeadlineWay(FrozenModel):
    """A job with a deadline, its machines bought in one way."""

    way: HourlyWay
    """The last begins on spot machines, and moves to on-demand ones while these still meet the
    deadline: `gpuplan launch --spot --deadline`."""
    hours: float
    """Expected hours of the whole job, from its request."""
    hours_low: float | None = None
    """Low end of the 80 % interval, hours; None in plans of versions that did not say it."""
    hours_high: float | None = None
    """High end of the 80 % interval, hours."""
    spot_share: float
    """Share of what is billed after the start that is spot machines, from 0 to 1."""
    usd: Usd | None
    """Expected US dollars of the whole job, with tax; None where a price is not known."""
    usd_low: Usd | None = None
    """Low end of the 80 % interval, US dollars at today's prices."""
    usd_high: Usd | None = None
    """High end of the 80 % interval, US dollars at today's prices."""
    deadline_probability: float
    """Chance that it ends before the deadline, from 0 to 1."""


class CreditUse(FrozenModel):
    """What a credit of the user's pricebook pays of a plan's whole job."""

    usd: Usd
    """US dollars that are left of the credit."""
    covers_usd: Usd
    """US dollars of the job that it pays; they are in the job's dollars all the same."""
    expires: date
    """The last day on which it is taken."""


class OwnCurrency(FrozenModel):
    """The currency of the user's pricebook, in which amounts are shown beside US dollars."""

    code: str
    """ISO 4217: EUR, GBP …"""
    per_usd: float
    """Units of it that one US dollar buys."""
    date: date
    """The day of that rate."""
