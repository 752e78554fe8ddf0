"""What `estimate` answers: the plans, the question they answer, and what to look at first.

This model is the machine-readable contract: every key is always present, `null` when this version
cannot fill it, and never renamed within a major version.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ....catalog.frozen import FrozenModel
from ....catalog.text.quantity import UNKNOWN
from ....catalog.types import USER_PRICE_BASES
from ..payment import WaysToPay
from ..plan import SCHEMA_VERSION, Plan
from ..rows import flat, frame, paths
from . import asked_words, html
from .answer_parts import (
    CatalogueFacts,
    Headlines,
    Hidden,
    NearMiss,
    PriceDates,
    Recommended,
    Rejected,
    WorkloadFacts,
)
from .asked import AskedQuestion

SHOWN_IN_NOTEBOOKS = 10
"""Plans of an answer's table in a notebook."""


class Estimate(FrozenModel):
    """The whole answer of `gpuplan estimate`."""

    schema_version: str = SCHEMA_VERSION
    """Of this format."""
    gpuplan_version: str
    """Of the program that answered."""
    generated_at: str
    """ISO 8601, with the offset from UTC."""
    catalog: CatalogueFacts
    """The snapshot of prices."""
    workload: WorkloadFacts
    """What is trained."""
    question: AskedQuestion | None = None
    """What was asked; None in answers of versions that did not keep it."""
    headlines: Headlines = Headlines()
    """The plans to look at first."""
    recommended: Recommended | None = None
    """None without an amount of work, or where no plan is sensible."""
    recommended_on_large_clouds: Recommended | None = None
    """The same on AWS, Google Cloud and Azure, where the recommended plan is of another seller."""
    near_miss: NearMiss | None = None
    """Where no plan is recommended, or none that gpuplan runs: the nearest, and what to give."""
    prices: PriceDates | None = None
    """Of the plans; None where no price of them is dated."""
    ways_to_pay: tuple[WaysToPay, ...] = ()
    """Of the recommended plans, or of the first without an amount of work, where all ways of paying
    were asked for."""
    plans: tuple[Plan, ...]
    """In order of rank; empty when none is feasible."""
    feasible: int
    """Feasible candidates before the best of each accelerator was taken."""
    rejected: Rejected
    """The other candidates."""
    hidden: Hidden = Hidden()
    """Feasible candidates that are not among the plans."""
    nearest_miss: str | None = None
    """Where no plan is within the limits, or nobody sells what is asked for: what the nearest
    takes, what is sold, and what to give."""
    warnings: tuple[str, ...] = ()
    """Those of the notes that say that the numbers may be wrong, or the plans not alike."""
    notes: tuple[str, ...] = ()
    """What a reader should know of the whole answer."""

    @property
    def asked_text(self) -> list[str]:
        """The model and its work as items: "gpt2", "124M parameters", "10B tokens" …."""
        work = self.workload
        items = [work.name, work.parameters_text]
        if self.question is not None:
            items += asked_words.work_items(self.question, work.tokens_per_sample)
        return items

    @property
    def has_only_own_prices(self) -> bool:
        """Whether there are plans, and all are priced by the user's own file."""
        own = [plan.offer.price_basis in USER_PRICE_BASES for plan in self.plans]
        return bool(own) and all(own)

    @property
    def limits_text(self) -> list[str]:
        """What limits the plans as items: "≤ 10 days", "≤ $5,000", "aws,gcp", "on demand" …."""
        items = [] if self.question is None else asked_words.limit_items(self.question)
        if any(plan.offer.has_own_terms for plan in self.plans):
            items.append("terms of your pricebook")
        refreshed = self.catalog.source.text(datetime.fromisoformat(self.generated_at))
        if refreshed is not None:
            items.append(refreshed)
        if self.prices is None and self.has_only_own_prices:
            priced = any(plan.offer.usd_per_hour is not None for plan in self.plans)
            return [*items, "your own prices, without a date"] if priced else items
        if self.prices is None or self.question is None:
            return [*items, f"prices of {self.catalog.snapshot_date.isoformat()}"]
        return [*items, f"prices of {self.prices.text()}"]

    @property
    def best(self) -> Plan | None:
        """The recommended plan; None where there is none."""
        wanted = None if self.recommended is None else self.recommended.id
        return next((plan for plan in self.plans if plan.id == wanted), None)

    @property
    def nearest(self) -> Plan | None:
        """The plan of `near_miss`; None where there is none."""
        wanted = None if self.near_miss is None else self.near_miss.id
        return next((plan for plan in self.plans if plan.id == wanted), None)

    @property
    def first_look(self) -> Plan | None:
        """The recommended plan, else the nearest to that, else the first; None without plans."""
        return self.best or self.nearest or next(iter(self.plans), None)

    @property
    def near_miss_text(self) -> str:
        """Why nothing is recommended, in one sentence without its stop; "" where something is."""
        nearest = self.nearest
        if self.near_miss is None or nearest is None or self.recommended is not None:
            return ""
        return (
            f"Nothing is recommended: the nearest plan, {nearest.place} ({nearest.devices}),"
            f" {self.near_miss.reason}"
        )

    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns of `rows`: paths in the JSON, such as step_time_s.low."""
        return Plan.columns()

    def rows(self) -> list[dict[str, Any]]:
        """Return the plans as flat dicts, values by `columns` as the JSON has them.

        The names end with the unit, as in the JSON; what is not known is None.
        """
        return [flat(plan.model_dump(mode="json"), paths(Plan)) for plan in self.plans]

    def to_frame(self) -> Any:
        """Return the plans as a pandas DataFrame: one row a plan, with the columns of `rows`.

        Raises:
            UsageError: pandas is not installed.
        """
        return frame(self.rows(), self.columns())

    def __str__(self) -> str:
        """Return the question, how many plans answer it, and the recommended one."""
        count = f"{len(self.plans):,} plan{'' if len(self.plans) == 1 else 's'}"
        lines = [f"Estimate of {' · '.join(self.asked_text)}: {count}"]
        if self.best is not None:
            lines.append(f"recommended: {self.best}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return the same lines as `str`: all plans with all fields say less."""
        return f"<{self}>"

    def _repr_html_(self) -> str:
        """Return the question, the recommended plan and a table of plans for a notebook."""
        best = self.best
        lines = [html.bold(" · ".join(self.asked_text)), html.text(" · ".join(self.limits_text))]
        if best is not None and self.recommended is not None:
            amount = "" if best.amount_text is None else f"{best.amount_text}, "
            facts = f"{best.place} ({best.devices}), {amount}{best.hours_text}, {best.cost_text}"
            why = f": {facts}; {self.recommended.reason}"
            lines.append(html.bold("Recommended") + html.text(why))
        elif self.near_miss is not None:
            lines.append(html.text(self.near_miss_text))
        if not self.plans:
            missed = f"No plan is feasible. {self.nearest_miss or ''}"
            return html.page(lines, end=html.text(missed.strip()))
        shown = [_notebook_cells(plan) for plan in self.plans[:SHOWN_IN_NOTEBOOKS]]
        more = len(self.plans) - len(shown)
        end = f"{more:,} more in .plans, .rows() and .to_frame()" if more else ""
        rows = [[row.get(name, UNKNOWN) for name in shown[0]] for row in shown]
        return html.page(lines, html.table(tuple(shown[0]), rows), end=html.text(end))


def _notebook_cells(plan: Plan) -> dict[str, str]:
    """Return one row of a notebook's table by heading."""
    return {
        "#": f"{'≈' if plan.tie_with_previous else ''}{plan.position}",
        "rent": plan.place,
        "on": plan.devices,
        **({} if plan.amount_text is None else {"trains": plan.amount_text}),
        "time": plan.hours_text,
        "cost": plan.cost_text,
        "rate": plan.rate_text,
        "risk": UNKNOWN if plan.p_oom is None else f"{plan.p_oom:.1%}",
        "layout": plan.string,
        "plan": plan.id,
    }
