"""Rank candidates: by money, time, memory; the best of each accelerator; ties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Literal

from ...catalog.types import CPU_PREFIX
from ...catalog.units import SECONDS_PER_HOUR
from ...catalog.vocabulary import Recompute
from ...profiles.profile import Profile
from ..cost.run_cost import samples_of
from ..hardware.cluster import Site
from ..plan.layout import Layout
from ..plan.plan import Plan
from ..plan.question import Question, Sort
from ..plan.setup import Setup
from .offers import PricedInstance

TRIES_PER_ACCELERATOR = 6
"""Candidates of one accelerator that are checked exactly before it is given up."""
CHECKED_PER_ACCELERATOR = 2
"""Finished plans of one accelerator that are compared; the exact check may change their order."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A site, a setup and a price, with its step time before intervals.

    Thousands are made and a few are shown, so the site and the setup are spelled out late.
    """

    choice: PricedInstance
    one_node: Site
    base: Setup
    layout: Layout
    micro_batch: int
    grad_accum: int
    recompute: Recompute
    step_s: float
    global_batch: int
    variants_that_fit: int

    @property
    def nodes(self) -> int:
        """How many nodes are rented."""
        return self.layout.accelerators // self.one_node.per_node

    @cached_property
    def site(self) -> Site:
        """Where it runs."""
        return replace(self.one_node, nodes=self.nodes)

    @cached_property
    def setup(self) -> Setup:
        """How the step is run."""
        return replace(
            self.base,
            layout=self.layout,
            micro_batch=self.micro_batch,
            grad_accum=self.grad_accum,
            recompute=self.recompute,
        )

    @property
    def seconds_per_sample(self) -> float:
        """Step time over the global batch."""
        return self.step_s / self.global_batch

    @cached_property
    def usd_per_hour(self) -> float:
        """All nodes; infinite when the price is unknown, so that it ranks last."""
        usd = self.choice.usd_per_hour
        return float("inf") if usd is None else float(usd) * self.nodes

    @cached_property
    def usd_per_sample(self) -> float:
        """Dollars per sample."""
        return self.usd_per_hour / SECONDS_PER_HOUR * self.seconds_per_sample

    def breaks(
        self, question: Question, profile: Profile
    ) -> Literal["past_deadline", "over_budget"] | None:
        """Return the limit of the question that this candidate breaks, if any."""
        samples = samples_of(question.work, profile.tokens_per_sample, self.global_batch)
        if samples is None:
            return None
        money = question.money
        if money.deadline_s is not None and samples * self.seconds_per_sample > money.deadline_s:
            return "past_deadline"
        if money.budget_usd is not None and Decimal(samples * self.usd_per_sample) > Decimal(
            money.budget_usd
        ):
            return "over_budget"
        return None

    def order(self, sort: Sort) -> tuple[float, ...]:
        """Return the sort key: the quantity asked for, then dollars, then size."""
        return sort_key(
            sort,
            cost=self.usd_per_sample,
            price=self.usd_per_hour,
            seconds=self.seconds_per_sample,
            size=self.layout.accelerators,
        )


def best_of_each_accelerator(
    candidates: list[Candidate],
    question: Question,
    profile: Profile,
    plan_of: Callable[[Candidate], Plan | None],
) -> list[Plan]:
    """Return plans in order: one per accelerator, or all of them on request.

    Accelerators that need a port to XLA come after the others. The fastest and the smallest plan
    are added when they are not among the best already.
    """
    sort: Sort = question.money.sort or "cost"
    ordered = _sorted(candidates, sort)
    if question.all_variants:
        chosen = _first_plans(ordered, (question.top or 100), plan_of)
    else:
        chosen = []
        groups: dict[str, list[Candidate]] = {}
        for candidate in ordered:
            groups.setdefault(candidate.one_node.accelerator.name, []).append(candidate)
        for group in groups.values():
            chosen += _best_plan(group[:TRIES_PER_ACCELERATOR], sort, plan_of)
    # The exact check may have shrunk a plan's micro-batch, so that plans are ordered again.
    chosen.sort(key=lambda plan: (plan.needs_port, *_plan_order(plan, sort)))
    return chosen + _extremes(ordered, chosen, plan_of)


def _best_plan(
    ordered: list[Candidate], sort: Sort, plan_of: Callable[[Candidate], Plan | None]
) -> list[Plan]:
    """Return the best finished plan, or nothing.

    The first that passes the exact check as it was is the best; one whose micro-batch had to be
    shrunk is compared with the next.
    """
    finished: list[Plan] = []
    for candidate in ordered:
        plan = plan_of(candidate)
        if plan is None:
            continue
        finished.append(plan)
        if plan.micro_batch == candidate.micro_batch or len(finished) == CHECKED_PER_ACCELERATOR:
            break
    return sorted(finished, key=lambda plan: _plan_order(plan, sort))[:1]


def _plan_order(plan: Plan, sort: Sort) -> tuple[float, ...]:
    """Return the sort key of a finished plan, as `Candidate.order` does before."""
    unknown = float("inf")
    cost, price = plan.usd_per_million_samples, plan.usd_per_hour
    return sort_key(
        sort,
        cost=unknown if cost is None else cost,
        price=unknown if price is None else price,
        seconds=1 / plan.samples_per_s,
        size=plan.accelerators,
    )


def sort_key(
    sort: Sort, *, cost: float, price: float, seconds: float, size: int
) -> tuple[float, ...]:
    """Return the key that orders by the quantity asked for, then by what matters next.

    Args:
        sort: "time" and "throughput" are seconds per sample, "memory" the fewest accelerators.
        cost: dollars per sample.
        price: dollars per hour.
        seconds: seconds per sample.
        size: accelerators.
    """
    if sort in ("time", "throughput"):
        return seconds, cost, size
    if sort == "memory":
        return size, cost, seconds
    if sort == "price":
        return price, seconds, size
    return cost, seconds, size


def _sorted(candidates: list[Candidate], sort: Sort) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: candidate.order(sort))


def _extremes(
    candidates: list[Candidate], chosen: list[Plan], plan_of: Callable[[Candidate], Plan | None]
) -> list[Plan]:
    """Return the fastest and the smallest plan where they are not among the chosen."""
    devices = (c for c in candidates if not c.one_node.accelerator.is_cpu)
    own = [c for c in devices if not c.one_node.accelerator.needs_xla]
    known = {plan.id for plan in chosen}
    extra: list[Plan] = []
    sorts: tuple[Sort, ...] = ("time", "memory")
    for sort in sorts:
        ordered = _sorted(own, sort)[:TRIES_PER_ACCELERATOR]
        for plan in _first_plans(ordered, 1, plan_of):
            if plan.id not in known:
                known.add(plan.id)
                extra.append(plan)
    return extra


def _first_plans(
    candidates: list[Candidate], wanted: int, plan_of: Callable[[Candidate], Plan | None]
) -> list[Plan]:
    plans: list[Plan] = []
    for candidate in candidates:
        if len(plans) == wanted:
            break
        plan = plan_of(candidate)
        if plan is not None:
            plans.append(plan)
    return plans


def mark_ties(plans: list[Plan]) -> tuple[Plan, ...]:
    """Return the plans numbered from 1, each marked when it cannot be told from the one before."""
    marked: list[Plan] = []
    for position, plan in enumerate(plans, start=1):
        tie = bool(marked) and _overlap(marked[-1], plan)
        marked.append(plan.model_copy(update={"position": position, "tie_with_previous": tie}))
    return tuple(marked)


def _overlap(first: Plan, second: Plan) -> bool:
    """Return whether the cost intervals of two plans of the same block overlap."""
    if first.needs_port != second.needs_port:
        return False
    a, b = first.usd_per_million_samples, second.usd_per_million_samples
    if a is None or b is None:
        return False

    def span(plan: Plan, usd: float) -> tuple[float, float]:
        time = plan.step_time_s
        return usd * time.low / time.value, usd * time.high / time.value

    (low_a, high_a), (low_b, high_b) = span(first, a), span(second, b)
    return low_a <= high_b and low_b <= high_a


def _by_size(plan: Plan) -> tuple[float, ...]:
    """Return the key of the smallest plan; of equals, the one whose training costs least."""
    usd = plan.usd_per_million_samples
    return plan.accelerators, usd is None, usd or 0.0


def headlines(plans: tuple[Plan, ...]) -> dict[str, str]:
    """Return ids of the cheapest, the fastest and the smallest plan that runs without a port.

    Host processors are there for comparison and are left out, unless there is nothing else.
    """
    devices = [p for p in plans if not p.offer.accelerator.startswith(CPU_PREFIX)]
    own = [plan for plan in devices if not plan.needs_port] or list(plans)
    if not own:
        return {}
    known = [plan for plan in own if plan.usd_per_million_samples is not None]
    lines = {
        "fastest": max(own, key=lambda p: p.samples_per_s).id,
        "smallest": min(own, key=_by_size).id,
    }
    if known:
        lines["cheapest"] = min(known, key=lambda p: p.usd_per_million_samples or 0.0).id
    return lines
