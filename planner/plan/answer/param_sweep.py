"""What `sweep` answers: one estimate for each value of a model's params, side by side."""

from __future__ import annotations

from typing import Any

from ....catalog.frozen import FrozenModel
from ..plan import SCHEMA_VERSION, Plan
from ..rows import flat, frame, paths
from . import asked_words
from .answer_parts import CatalogueFacts, PriceDates, Recommended, Rejected, WorkloadFacts
from .asked import AskedBatch, AskedQuestion


class SweepRow(FrozenModel):
    """The answer for one combination of values: its plan, or why there is none."""

    params: dict[str, object]
    """The values of the params that differ from row to row."""
    workload: WorkloadFacts | None = None
    """What is trained; None where the model could not be traced."""
    global_batch: AskedBatch | None = None
    """Of the plan; a rule may give each size of model its own."""
    plan: Plan | None = None
    """The recommended plan; the first of the list where none is recommended; None where no plan is
    feasible."""
    recommended: Recommended | None = None
    """Why that plan; None without an amount of work."""
    feasible: int | None = None
    """Feasible candidates; None where the model could not be traced."""
    rejected: Rejected | None = None
    """The other candidates, by reason; None where the model could not be traced."""
    why_not: str | None = None
    """Why there is no plan: what failed in the file, or what the nearest plan takes."""
    notes: tuple[str, ...] = ()
    """What a reader should know of this row."""


class Sweep(FrozenModel):
    """The whole answer of `gpuplan estimate` where a param has several values."""

    schema_version: str = SCHEMA_VERSION
    """Of this format."""
    gpuplan_version: str
    """Of the program that answered."""
    generated_at: str
    """ISO 8601, with the offset from UTC."""
    catalog: CatalogueFacts | None = None
    """The snapshot of prices; None where no model could be traced."""
    question: AskedQuestion | None = None
    """What was asked of the first model that was traced; `params` are those that do not differ."""
    values: dict[str, tuple[object, ...]]
    """Param that differs → its values, in the order given."""
    sweep: tuple[SweepRow, ...]
    """One row for every combination of values, the last param changing first."""

    @property
    def asked_text(self) -> list[str]:
        """The model, the values and the work as items: "gpt2", "layers = 12, 24", "10B tokens"."""
        named = [f"{name} = {', '.join(map(str, vs))}" for name, vs in self.values.items()]
        if self.question is None:
            return named
        return [self.question.model, *named, *asked_words.amount_items(self.question)]

    @property
    def limits_text(self) -> list[str]:
        """What limits the plans as items, "≤ 10 days", "on demand", and of when prices are."""
        items = [] if self.question is None else asked_words.limit_items(self.question)
        return [*items, *([] if self.prices is None else [f"prices of {self.prices.text()}"])]

    @property
    def prices(self) -> PriceDates | None:
        """When the prices of these plans were read; None where none is dated."""
        offers = [row.plan.offer for row in self.sweep if row.plan is not None]
        return PriceDates.of((one.price_date, one.price_date_precision) for one in offers)

    def columns(self) -> tuple[str, ...]:
        """Return the columns of `rows`: the params, the model, why there is no plan, the plan's."""
        return (
            *(f"params.{name}" for name in self.values),
            *(f"workload.{'.'.join(path)}" for path in paths(WorkloadFacts)),
            "why_not",
            *(f"plan.{'.'.join(path)}" for path in paths(Plan)),
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as flat dicts by `columns`; what is not known is None."""
        return [self._flat(row) for row in self.sweep]

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame, with the columns of `rows`.

        Raises:
            UsageError: pandas is not installed.
        """
        return frame(self.rows(), self.columns())

    def __str__(self) -> str:
        """Return what was asked, and one line a row."""
        lines = [f"Sweep of {' · '.join(self.asked_text)}"]
        for row in self.sweep:
            named = ", ".join(f"{name}={value}" for name, value in row.params.items())
            lines.append(f"{named}: {row.plan or row.why_not}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return the same lines as `str`: all plans with all fields say less."""
        return f"<{self}>"

    def _flat(self, row: SweepRow) -> dict[str, Any]:
        values = row.model_dump(mode="json")
        plan = [("plan", *path) for path in paths(Plan)]
        work = [("workload", *path) for path in paths(WorkloadFacts)]
        params = [("params", name) for name in self.values]
        return flat(values, [*params, *work, ("why_not",), *plan])
