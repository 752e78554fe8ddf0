"""Capacity over time: what a project wants of accelerators when, and what slips.

The answer of `gpuplan capacity gpuplan.yaml`, which `planner.capacity` makes.
"""

from __future__ import annotations

from datetime import date

from ....catalog.frozen import FrozenModel, Usd
from ..project.months import Month


class JobTimes(FrozenModel):
    """When one occurrence of an experiment's runs goes on."""

    name: str
    """The runs, with the number of the occurrence where there are several."""
    experiment: str
    """As the project file calls it."""
    accelerator: str
    """Canonical name."""
    accelerators_wanted: int
    """At the same time, with as many as the file asks for."""
    accelerators: int
    """At the same time, with those that there are."""
    wanted_begin: date
    """With as many machines as are wanted."""
    wanted_end: date
    """Then; likely."""
    begin: date
    """With those that there are."""
    end: date
    """Then; likely."""
    slips_days: float
    """How much later it ends than wanted."""
    priority: int
    """What a day that it slips counts beside those of others."""
    cannot_start: str | None = None
    """Why it never starts with the quota of the account; its times are then those with more."""


class AcceleratorNeed(FrozenModel):
    """How many accelerators of a kind a month wants; ranges hold 80 % of the draws."""

    month: Month
    """The month."""
    accelerator: str
    """Canonical name."""
    mean: float
    """On average over the month, with likely times."""
    mean_low: float
    """10 % of the draws have fewer."""
    mean_high: float
    """10 % of the draws have more."""
    peak: int
    """At the same time, with likely times."""
    peak_low: int
    """10 % of the draws have a lower peak."""
    peak_high: int
    """10 % of the draws have a higher one."""
    have: int | None
    """How many there are; null: as many as are wanted."""
    used: float
    """On average over the month, with those that there are."""
    short_probability: float
    """Share of the draws in which the peak is more than there are."""


class Shortage(FrozenModel):
    """A kind of accelerator of which there are fewer than are wanted."""

    accelerator: str
    """Canonical name."""
    have: int
    """How many there are."""
    wanted: int
    """With so many nothing waits, with likely times."""
    short_from: date
    """From this day on there are too few: the day to have more by."""
    utilisation: float
    """Share of what there are that is used, from the first job to the last."""


class QuotaNeed(FrozenModel):
    """One quota of the account beside what the project wants of it."""

    provider: str
    region: str
    """`global`: of all regions together."""
    name: str
    """As the provider's own pages call it."""
    code: str
    unit: str
    accelerators: tuple[str, ...]
    """What it counts of the project's, canonical names."""
    limit: float
    used: float | None
    """By all that runs in the account now; null: not known, and then nothing is taken to run."""
    free: int
    """What is left to the project, should all that runs now go on."""
    wanted: int
    """By the project at the same time, with as many machines as it wants; likely."""
    short_from: date | None
    """From this day on it is too little; null: it is enough."""
    ask_by: date | None
    """The day to ask for more on; null where it is enough, or nobody says how long that takes."""
    answer_days: int | None
    """Working days that the provider usually takes to answer; null where that is not known."""
    command: str | None = None
    """What asks for as much as is wanted; null where it is enough."""


class CommittedNodes(FrozenModel):
    """Nodes that are worth a commitment of one term."""

    begin: date
    """First day of the term."""
    nodes: int
    """How many."""


class CommitmentMix(FrozenModel):
    """The cheapest mix of commitments of one length and machines on demand, for one type."""

    machine: str
    """Seller, region and type."""
    accelerator: str
    """Canonical name."""
    term_years: float
    """Of the commitments."""
    break_even_share: float
    """Share of the term that a node must be used for a commitment to pay."""
    committed: tuple[CommittedNodes, ...]
    """By term; empty: none pays."""
    used_share: float
    """Share of the committed hours that are used; without any, of the term by the node that is used
    most."""
    usd: Usd
    """Of all its hours within the project, commitments and on demand, with the pricebook's tax."""
    on_demand_usd: Usd
    """The same, all on demand."""


class CommittedTerm(FrozenModel):
    """Nodes that are committed for one term."""

    begin: date
    """Its first day."""
    term_years: float
    """How long it is."""
    nodes: int
    """How many."""


class CheapestMix(FrozenModel):
    """The cheapest mix of commitments of all lengths and machines on demand, for one type."""

    machine: str
    """Seller, region and type."""
    accelerator: str
    """Canonical name."""
    committed: tuple[CommittedTerm, ...]
    """In the order in which they begin; empty: none pays."""
    used_share: float | None
    """Share of the committed hours that are used; null: none is committed."""
    usd: Usd
    """Of all its hours within the project, commitments and on demand, with the pricebook's tax."""
    one_length_usd: Usd
    """The same with the cheapest commitments of one length, term after term from the begin."""
    on_demand_usd: Usd
    """The same, all on demand."""


class CapacityOverTime(FrozenModel):
    """What a project wants of accelerators over time, and when it is done with those it has."""

    schema_version: str = "1.0"
    project: str
    """Its name."""
    start: date
    """Its first day."""
    have: dict[str, int]
    """Accelerators by kind; of other kinds there are as many as are wanted."""
    headline: str
    """The answer in a sentence."""
    how: str
    """How the order of the jobs was found."""
    wanted_end: date
    """Last end with as many machines as are wanted; likely."""
    end: date
    """Last end with those that there are; likely."""
    end_low: date
    """10 % of the draws end earlier."""
    end_high: date
    """10 % of the draws end later."""
    draws: int
    """How often the times of the runs were drawn."""
    jobs: tuple[JobTimes, ...]
    """In the order in which they begin."""
    needs: tuple[AcceleratorNeed, ...]
    """By month and kind; months that want none are left out."""
    shortages: tuple[Shortage, ...]
    """Kinds of which there are too few."""
    commitments: tuple[CommitmentMix, ...] = ()
    """Of machines that are rented on demand, by type and length of the terms, the cheapest mix
    first."""
    mixes: tuple[CheapestMix, ...] = ()
    """Of the same machines, with terms of all lengths together, each begun when it pays."""
    mixes_unknown: str | None = None
    """Why `mixes` are not known; null: they are."""
    uncommitted: tuple[str, ...] = ()
    """Such machines for which nobody states the price of a commitment."""
    quotas: tuple[QuotaNeed, ...] = ()
    """Of the account, those that count machines of the project; empty where it was not asked."""
    quotas_unknown: dict[str, str] = {}
    """Machines whose quota is not known, with the reason: they are taken to have enough."""
