"""The report of a project: what `gpuplan report` answers, the same in every format.

`entries` is the ledger: one row for every experiment, month and cost line. Every other sum of the
report is a sum of its rows, so that all of them agree to the cent. Like a plan, the JSON has every
key always, null where something is not known.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from ....catalog.frozen import FrozenModel, Usd
from ...plan.answer.answer_parts import PriceDates
from ...plan.payment import OwnCurrency
from ..difference.causes import Difference
from .actual_rows import SpentRow, VarianceRow
from .capacity_rows import CapacityOverTime
from .limit_rows import LimitCheck, no_price_of
from .open_rows import OpenLedgerLine
from .outlook import will_come_to_usd
from .rows import (
    AcceleratorUse,
    AssumptionRow,
    Entry,
    ExperimentRow,
    FundingRow,
    MoneyRange,
    OptionRow,
    ProjectFacts,
    Sensitivity,
    Sum,
    WayRow,
)

REPORT_SCHEMA_VERSION = "1.0"


class BudgetReport(FrozenModel):
    """The whole answer of `gpuplan report`."""

    schema_version: str = REPORT_SCHEMA_VERSION
    """Of this format."""
    gpuplan_version: str
    """Of the program that answered."""
    generated_at: str
    """ISO 8601, with the offset from UTC."""
    snapshot_date: date
    """The day of the price snapshot."""
    prices_from: date | None
    """Oldest price that is used; None where none is dated."""
    prices_to: date | None
    """Newest price that is used."""
    prices_by_year: bool = False
    """Whether one of them is known by its year alone, and dated the 1st of January."""
    project: ProjectFacts
    """What the project is."""
    summary: tuple[str, ...]
    """The first page in words, the most important sentence first."""
    total: MoneyRange
    """US dollars of the project, without contingency."""
    contingency_share: float
    """Of the total, from 0 to 1."""
    contingency_usd: Usd
    """US dollars for what nobody planned."""
    budget_usd: Usd
    """Total and contingency: the sum to ask for."""
    funding: tuple[FundingRow, ...]
    """Who pays, in the order of the project file."""
    unfunded_usd: Usd | None
    """What no source pays; None where the project names no funding."""
    options: tuple[OptionRow, ...]
    """Cheap, normal and fast."""
    experiments: tuple[ExperimentRow, ...]
    """In the order of the project file."""
    entries: tuple[Entry, ...]
    """The ledger."""
    by_month: tuple[Sum, ...]
    """Every month of the project."""
    by_experiment: tuple[Sum, ...]
    """The dearest first; what belongs to none is "the project"."""
    by_owner: tuple[Sum, ...]
    """The dearest first."""
    by_provider: tuple[Sum, ...]
    """The dearest first."""
    by_kind: tuple[Sum, ...]
    """What is paid for, the dearest first."""
    month_ranges: tuple[MoneyRange, ...]
    """Range of what is spent until the end of each month of the project, cumulative."""
    limits: tuple[LimitCheck, ...]
    """Every limit of the project."""
    accelerators: tuple[AcceleratorUse, ...]
    """By month and kind."""
    accelerator_hours: float
    """Of all runs."""
    energy_kwh: float | None
    """Of all runs; None where that of one is not known."""
    kg_co2e: float | None
    """Of all runs; None where that of one is not known."""
    sensitivities: tuple[Sensitivity, ...]
    """The five assumptions that move the total most, that which moves it most first."""
    assumptions: tuple[AssumptionRow, ...]
    """What the sums rest on."""
    risks: tuple[str, ...]
    """What may go wrong, in words."""
    not_included: tuple[str, ...]
    """What the sums do not hold."""
    unpriced: tuple[str, ...] = ()
    """Experiments, data and idle machines whose price no source states: they are in no sum, so that
    every sum is the least that it may be."""
    in_part: tuple[str, ...] = ()
    """Experiments that surely pay for something beside their machines whose price no source states,
    such as vCPUs or disks: it is in no sum, which is then the least that it may be."""
    open_lines: tuple[OpenLedgerLine, ...] = ()
    """What of both has no price, as lines of the ledger."""
    beyond: tuple[str, ...] = ()
    """What must be paid or looked at beyond the sums, in sentences: prices that nobody states,
    terms that must be signed, limits of nobody."""
    so_far: str | None = None
    """What launches have cost, in a sentence; None without launches."""
    currency: OwnCurrency | None
    """The currency that amounts are also shown in."""
    spent: tuple[SpentRow, ...] = ()
    """Launches of these plans so far."""
    variances: tuple[VarianceRow, ...] = ()
    """Experiments with launches that have ended, against their plans."""
    ways: tuple[WayRow, ...] = ()
    """Rent, reserve or buy: other ways of paying for machines of plans on demand; in no sum."""
    capacity: CapacityOverTime | None = None
    """Ranges of the accelerators that are wanted, and what slips with those that the project has;
    None where nothing was planned for it."""
    moved: Difference | None = None
    """Why it differs from an earlier report of the same file; None where none was asked for."""
    seed: int
    """Of the simulation behind the ranges."""
    draws: int
    """Of the simulation."""

    @property
    def price_dates(self) -> PriceDates | None:
        """From when to when the prices are; None where none is dated."""
        if self.prices_from is None or self.prices_to is None:
            return None
        return PriceDates(
            oldest=self.prices_from, newest=self.prices_to, by_year=self.prices_by_year
        )

    @property
    def will_come_to_usd(self) -> Decimal:
        """US dollars at its end: launches as they are, all other runs as they were planned."""
        return will_come_to_usd(self.total.usd, self.experiments, self.spent, self.variances)

    @property
    def is_over(self) -> bool:
        """Whether a limit is exceeded that the project says must not be."""
        return any(one.is_over and one.on_exceed == "fail" for one in self.limits)

    @property
    def is_lower_bound(self) -> bool:
        """Whether something that it plans has no known price; so too in reports that said less."""
        return self.total.lower_bound or bool(self.unpriced)

    @property
    def unpriced_text(self) -> str:
        """What of the project has no price, in words."""
        return no_price_of(self.unpriced, self.in_part)

    @property
    def must_not_pass(self) -> bool:
        """Whether such a limit is exceeded, or nobody knows because something has no price."""
        return any(one.must_not_pass for one in self.limits)
