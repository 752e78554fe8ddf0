"""The answer of `gpuplan diff`: two sides, and causes that add up to their difference."""

from __future__ import annotations

from typing import Literal

from ....catalog.frozen import FrozenModel, Usd
from ..report.limit_rows import no_price_of

DIFFERENCE_SCHEMA_VERSION = "1.0"


CauseKind = Literal[
    "scope",
    "runs",
    "work",
    "model",
    "plan",
    "speed",
    "software",
    "price",
    "other",
    "fixed",
    "contingency",
]
"""Why a sum changes; `runs` to `other` stand in the order in which they are replaced."""


class Cause(FrozenModel):
    """One reason why the later sum differs."""

    kind: CauseKind
    """Which kind of reason."""
    experiment: str | None
    """Whose money: an experiment's, or that of a line whose price is not known any more; None for
    what belongs to none."""
    text: str
    """In words, as they follow "because"."""
    usd: Usd
    """US dollars more; below 0 less."""


class ExperimentDifference(FrozenModel):
    """One experiment in both reports."""

    name: str
    """Of the experiment."""
    is_new: bool
    """Whether the later report alone has it."""
    is_left_out: bool
    """Whether the earlier report alone has it."""
    before_usd: Usd | None
    """In the earlier report; None where it is not in it, or its price is not known."""
    after_usd: Usd | None
    """In the later report; None where it is not in it, or its price is not known."""
    difference_usd: Usd
    """US dollars more; below 0 less."""
    causes: tuple[Cause, ...]
    """Together the difference."""


class Side(FrozenModel):
    """One of the two reports."""

    name: str
    """What was asked for: a file, a plan, a git revision."""
    gpuplan_version: str
    """Of the program that answered."""
    generated_at: str
    """When it was made."""
    total_usd: Usd
    """US dollars without contingency."""
    contingency_usd: Usd
    """US dollars for what nobody planned."""
    budget_usd: Usd
    """Both: what is compared."""
    p90_usd: Usd
    """With a chance of 10 % the total ends above."""
    accelerator_hours: float
    """Of all runs."""
    unpriced: tuple[str, ...] = ()
    """Experiments and lines whose price is not known: they are in no sum, which are at least so
    much."""
    in_part: tuple[str, ...] = ()
    """Experiments with a price that leaves a part of them out, for which the same holds."""

    @property
    def is_lower_bound(self) -> bool:
        """Whether the sums are the least that they may be."""
        return bool(self.unpriced or self.in_part)


class KindSum(FrozenModel):
    """All causes of one kind."""

    kind: CauseKind
    """Which."""
    usd: Usd
    """US dollars more; below 0 less."""


class Difference(FrozenModel):
    """The whole answer of `gpuplan diff`."""

    schema_version: str = DIFFERENCE_SCHEMA_VERSION
    """Of this format."""
    headline: str
    """The first line."""
    before: Side
    """The earlier one."""
    after: Side
    """The later one."""
    difference_usd: Usd
    """Of the budgets, US dollars; below 0 less. Of what has a price, where `not_compared` names
    anything."""
    not_compared: tuple[str, ...] = ()
    """Experiments and lines whose price the later report does not know, or not in full, and that
    are new, had a price, or are other machines, hours or data: nobody knows what they change."""
    share: float | None
    """Of the earlier budget; None where that is 0."""
    experiments: tuple[ExperimentDifference, ...]
    """Those whose money or being there differs, the largest difference first."""
    project: tuple[Cause, ...]
    """What belongs to no experiment: fixed lines and contingency."""
    by_kind: tuple[KindSum, ...]
    """Causes of the whole, the largest first; together the difference."""

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Every cause, the largest first."""
        found = [*(cause for one in self.experiments for cause in one.causes), *self.project]
        return tuple(sorted(found, key=lambda one: -abs(one.usd)))

    @property
    def not_compared_text(self) -> str:
        """What of the later report has no price, in words: "the price of a is not known"."""
        parts = [one for one in self.not_compared if one in self.after.in_part]
        return no_price_of([one for one in self.not_compared if one not in parts], parts)

    def worth(self, cause: Cause) -> Usd | None:
        """Return what a cause is worth, US dollars; None where its price is not known any more."""
        return None if cause.experiment in self.not_compared else cause.usd
