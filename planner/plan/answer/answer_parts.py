"""What an answer says beside its plans: catalogue, workload, what fell out, what to look at first.

Parts of the machine-readable contract, as those of `parts.py`: every key is always present, and
never renamed within a major version.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from ....catalog.frozen import FrozenModel, Usd
from ....catalog.listing.sources import PriceSource
from ....catalog.text.quantity import format_count

FEW_FROZEN = 0.005
"""Share of the parameters that nobody asks about when it is frozen."""


class CatalogueFacts(FrozenModel):
    """Which price snapshot the plans were priced with."""

    snapshot_date: date
    """The day of the snapshot."""
    offers: int
    """Offers in it."""
    source: PriceSource = PriceSource()
    """Whether they are the package's own or refreshed from the clouds, when, and whose."""


class WorkloadFacts(FrozenModel):
    """What is trained."""

    name: str
    """Of the model."""
    parameters: int
    """Of the whole model."""
    trainable_parameters: int
    """Those that are not frozen."""
    flops_per_sample: float
    """Floating-point operations of the forward and backward pass, matmul-like work."""
    tokens_per_sample: float | None
    """None where the model file does not say."""

    @property
    def parameters_text(self) -> str:
        """How many there are: "124M parameters", "70.6B parameters, 16.4M of them trained".

        A few that are frozen (fixed positions) are not told: both numbers would be alike.
        """
        text = f"{format_count(self.parameters)} parameters"
        if self.trainable_parameters >= (1 - FEW_FROZEN) * self.parameters:
            return text
        return f"{text}, {format_count(self.trainable_parameters)} of them trained"


class Rejected(FrozenModel):
    """How many candidates fell out, by reason."""

    out_of_memory: int = 0
    """They do not fit."""
    no_price: int = 0
    """No source states one."""
    no_spec: int = 0
    """The accelerator has no specification."""
    no_topology: int = 0
    """Several nodes, and the network between them is not known."""
    over_budget: int = 0
    """They cost more than was allowed."""
    past_deadline: int = 0
    """They take longer than was allowed."""
    indivisible: int = 0
    """They do not make up the global batch."""
    unsupported: int = 0
    """This version cannot predict it, or the accelerator cannot run it."""


class Headlines(FrozenModel):
    """Ids of the three plans to look at first, among those that run without a port."""

    cheapest: str | None = None
    """Fewest dollars."""
    fastest: str | None = None
    """Shortest."""
    smallest: str | None = None
    """Fewest accelerators, then fewest dollars a sample."""


class CompileGain(FrozenModel):
    """What torch.compile is predicted to gain on the machines of a plan that does not compile."""

    times_as_fast: float
    """The time of the whole job without it, over that with it; where limits say how much is
    trained, the rates."""
    hours: float
    """Likely hours of the whole job with it."""
    usd: Usd | None
    """Likely US dollars of the whole job with it; None where the price is not known, or limits say
    how much is trained."""


class Recommended(FrozenModel):
    """The plan that a person would rent, and why."""

    id: str
    """Of the plan."""
    position: int
    """Of the plan in the list."""
    reason: str
    """In words."""
    gap_to_cheapest: float
    """Its cost over that of the cheapest plan, less one; where limits say how much is trained, the
    most that a plan trains over what it trains, less one."""
    with_compile: CompileGain | None = None
    """What `--compile` would gain on it; None where that is less than a fifth of its time, where
    the file compiles, and where it was asked with or without."""


class NearMiss(FrozenModel):
    """The plan nearest to a recommendation, where none is recommended or none that gpuplan runs."""

    id: str
    """Of the plan."""
    reason: str
    """What keeps it from being recommended, and what to give, in words."""
    options: str | None
    """The options with which it may be recommended: "--max-oom-risk 0.03"; None where none do."""


class Hidden(FrozenModel):
    """Feasible candidates that are not shown, by reason."""

    above_cost: int = 0
    """They cost more than 5 times the cheapest; where limits say how much is trained, they train
    less than a fifth of the most."""
    above_time: int = 0
    """They take more than 60 days, and no deadline was given."""


class PriceDates(FrozenModel):
    """When the prices that the plans use were read at their sources."""

    oldest: date
    """Of the oldest price."""
    newest: date
    """Of the newest price."""
    by_year: bool = False
    """Whether a source of them names its year alone; the date is then the first of January."""

    @classmethod
    def of(cls, prices: Iterable[tuple[date | None, str | None]]) -> PriceDates | None:
        """Return the dates of prices; None where no price is dated.

        Args:
            prices: the date of each with its precision: "day", "month" or "year".
        """
        dated = [(day, precision) for day, precision in prices if day is not None]
        if not dated:
            return None
        return cls(
            oldest=min(day for day, _ in dated),
            newest=max(day for day, _ in dated),
            by_year=any(precision == "year" for _, precision in dated),
        )

    def text(self, form: str = "%Y-%m") -> str:
        """Return the oldest and the newest date; one where they are shown alike.

        Args:
            form: of a date that is known better than by its year, as for `strftime`.
        """
        first, last = (self._shown(day, form) for day in (self.oldest, self.newest))
        return last if first == last else f"{first} to {last}"

    def _shown(self, day: date, form: str) -> str:
        is_year = self.by_year and (day.month, day.day) == (1, 1)
        return day.strftime("%Y" if is_year else form)
