"""Rank candidates: by money, time, memory; the best of every group; ties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from ....catalog.units import SECONDS_PER_HOUR
from ...plan.plan import Plan
from ...plan.question import HIDDEN_ABOVE, By, Money, Question, Sort
from ..candidate import Candidate
from ..machines.offers import LARGE_CLOUDS
from ..order import Order
from .plan_order import carbon_of, plan_order
from .recommended import MOST_HOURS, cost_of, most_sensible_cost, weight_of

TRIES_PER_GROUP = 6
"""Candidates of one group that are checked exactly before it is given up."""
AS_PROMISED = 1.001
"""Step of a finished plan over that of its candidate up to which nothing was changed."""
MOST_PLANS = 100
SHOWN_APART = 1
"""Plans on accelerators that stand apart which are shown beside a number that was asked for."""
FEW_PROVIDERS = 4
"""Of so many providers that are named, each has a plan on every accelerator it sells."""

PlanOf = Callable[[Candidate], Plan | None]
WeightOf = Callable[[Candidate], tuple[bool, float]]
SpanOf = Callable[[Plan], tuple[float, float] | None]


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The plans in order, and how many candidates are not shown for what they cost or take."""

    plans: list[Plan]
    above_cost: int
    above_time: int


def rank(
    candidates: list[Candidate],
    question: Question,
    plan_of: PlanOf,
    *,
    runs: Callable[[Candidate], bool],
    stands_apart: Callable[[Candidate], bool],
    needs_build: Callable[[Candidate], bool],
) -> Ranked:
    """Return plans in order: one per group, or all of them on request.

    Plans that may run out of memory come after the others, and last those on accelerators that
    run the file only after a port, or with torch built from source.
    The plans that the first lines of an answer name are added where they are not among the best:
    the fastest, the smallest, and what may be recommended.

    Args:
        candidates: within the limits of the question.
        question: what was asked.
        plan_of: finishes a candidate; None where it does not fit after all.
        runs: whether gpuplan's runner carries a candidate out.
        stands_apart: whether its accelerator needs a port, or torch built from source.
        needs_build: whether it needs a build of torch that pip does not bring.
    """
    sort: Sort = question.money.sort or "cost"
    in_order = sorted(candidates, key=lambda one: one.order(sort))
    # Whoever asks for host processors compares with them, whatever they cost.
    cpus = [one for one in in_order if one.one_node.accelerator.is_cpu]
    ordered = [one for one in in_order if not one.one_node.accelerator.is_cpu]
    long: list[Candidate] = []
    if question.top is not None and sort == "cost" and question.money.deadline_s is None:
        ordered, long = _without_the_long(ordered, stands_apart)
    dear: list[Candidate] = []
    if question.top is not None and sort != "carbon":
        ordered, dear = _without_the_dear(ordered, stands_apart)
        if question.machine.accelerators:
            # Whoever names several compares them.
            ordered, dear = _with_each(ordered, dear, lambda one: one.one_node.accelerator.name)
        if question.by == "provider":
            # A plan that needs a port first is not what a seller is compared by.
            ordered, dear = _with_each(ordered, dear, _seller_of, but=stands_apart)
            ordered, dear = _with_each(ordered, dear, _seller_of)
    own = [one for one in ordered if not stands_apart(one)]
    apart = [one for one in ordered if stands_apart(one)]
    top = question.top or MOST_PLANS
    few = min(top, SHOWN_APART) if question.top else top
    # Beside plans on accelerators one is enough; where there are none, they are the plans.
    most_cpus = few if own or apart else top
    max_oom = question.money.max_oom
    if question.all_variants:
        chosen = _first_plans(own, top, plan_of)
        chosen += _first_plans(apart, few, plan_of)
        chosen += _first_plans(cpus, most_cpus, plan_of)
    else:
        by = grouping(question)
        chosen = _best_of_groups(own, by, sort, top, plan_of, max_oom)
        chosen += _best_of_groups(apart, by, sort, few, plan_of, max_oom)
        chosen += _best_of_groups(cpus, by, sort, most_cpus, plan_of, max_oom)
    weight = partial(_weight, money=question.money, needs_build=needs_build)
    own_dear = [one for one in dear if not stands_apart(one)]
    chosen += _extremes(own, own_dear, chosen, weight, plan_of, runs, max_oom)
    # The exact check may have shrunk a plan's micro-batch, so that plans are ordered again.
    chosen.sort(key=lambda plan: (plan.stands_apart, *plan_order(plan, sort, max_oom)))
    return Ranked(plans=chosen, above_cost=_variants(dear), above_time=_variants(long))


def _variants(candidates: Iterable[Candidate]) -> int:
    return sum(one.variants_that_fit for one in candidates)


def grouping(question: Question) -> By | None:
    """Return what there is one plan for; None: for each provider and accelerator."""
    named = [name for name in question.machine.providers if name != "all"]
    if question.by is None and 1 < len(named) <= FEW_PROVIDERS:
        return None
    return question.by or "accelerator"


def _group_of(candidate: Candidate, by: By | None) -> tuple[str, ...]:
    offer = candidate.choice.offer
    accelerator = candidate.one_node.accelerator.name
    return {
        "accelerator": (accelerator,),
        "provider": (offer.provider,),
        "instance": (offer.provider, offer.instance_type),
        "region": (offer.provider, offer.region),
        None: (offer.provider, accelerator),
    }[by]


def _without_the_long(
    ordered: list[Candidate], stands_apart: Callable[[Candidate], bool]
) -> tuple[list[Candidate], list[Candidate]]:
    """Return the candidates that end within the time that anybody waits, and the others.

    Few machines for a year cost about what many for days do: a list by cost would be one of the
    first. Those that stand apart are told from each other alone; where nothing safe ends in time,
    nothing is left out.
    """
    in_time = [one for one in ordered if _waited(one) <= MOST_HOURS]
    sides = {stands_apart(one) for one in in_time if not one.is_risky}
    long = [one for one in ordered if _waited(one) > MOST_HOURS and stands_apart(one) in sides]
    left = {id(one) for one in long}
    return [one for one in ordered if id(one) not in left], long


def _without_the_dear(
    ordered: list[Candidate], stands_apart: Callable[[Candidate], bool]
) -> tuple[list[Candidate], list[Candidate]]:
    """Return the candidates of at most so many times the cheapest cost, and the others.

    The cheapest is one that may be recommended, where there is any.
    """
    own = [one for one in ordered if not stands_apart(one)] or ordered
    safe = [one.usd for one in own if not one.is_risky]
    limit = HIDDEN_ABOVE * min(safe or [one.usd for one in own], default=float("inf"))
    near = [one for one in ordered if one.usd <= limit]
    return near, [one for one in ordered if one.usd > limit]


def _seller_of(candidate: Candidate) -> str:
    return candidate.choice.offer.provider


def _with_each(
    near: list[Candidate],
    dear: list[Candidate],
    of: Callable[[Candidate], str],
    *,
    but: Callable[[Candidate], bool] | None = None,
) -> tuple[list[Candidate], list[Candidate]]:
    """Return both lists, with those of devices or sellers that the first has not at its end.

    Args:
        near: the first list.
        dear: the second.
        of: names the device or seller.
        but: whether a candidate is passed over, as if it were not there.
    """
    known = {of(one) for one in near if but is None or not but(one)}
    returned = [one for one in dear if of(one) not in known and (but is None or not but(one))]
    left = {id(one) for one in returned}
    return [*near, *returned], [one for one in dear if id(one) not in left]


def _best_of_groups(
    ordered: list[Candidate], by: By | None, sort: Sort, top: int, plan_of: PlanOf, max_oom: float
) -> list[Plan]:
    """Return the best plans of so many groups, whose first candidates come first."""
    groups: dict[tuple[str, ...], list[Candidate]] = {}
    for candidate in ordered:
        groups.setdefault(_group_of(candidate, by), []).append(candidate)
    chosen: list[Plan] = []
    for group in groups.values():
        if len(chosen) == top:
            break
        chosen += _best_plan(group[:TRIES_PER_GROUP], sort, plan_of, max_oom)
    return chosen


def _best_plan(
    ordered: list[Candidate], sort: Order, plan_of: PlanOf, max_oom: float
) -> list[Plan]:
    """Return the best finished plan, or nothing.

    The exact check may leave another variant of a candidate, which is slower: the next ones are
    finished too, as long as what they promise is better than the best that is finished.
    """
    best: Plan | None = None
    for candidate in ordered:
        if best is not None and candidate.order(sort) >= plan_order(best, sort, max_oom):
            break
        plan = plan_of(candidate)
        if plan is None:
            continue
        if best is None or plan_order(plan, sort, max_oom) < plan_order(best, sort, max_oom):
            best = plan
        if _is_as_promised(best, candidate, max_oom):
            break
    return [] if best is None else [best]


def _is_as_promised(plan: Plan, candidate: Candidate, max_oom: float) -> bool:
    """Return whether the exact check left a candidate as it was, or a run of it was measured."""
    is_safe = plan.p_oom is None or plan.p_oom <= max_oom
    step = plan.step_time_s
    # One that was measured to be slower stays: its relatives are predicted too fast as well.
    is_known = step.basis == "measured"
    return is_safe and (is_known or step.value <= AS_PROMISED * candidate.step_s)


def _extremes(
    candidates: list[Candidate],
    dear: list[Candidate],
    chosen: list[Plan],
    weight: WeightOf,
    plan_of: PlanOf,
    runs: Callable[[Candidate], bool],
    max_oom: float,
) -> list[Plan]:
    """Return the plans that the first lines may name where they are not among the chosen."""
    devices = [one for one in candidates if not one.one_node.accelerator.is_cpu]
    if not devices:
        return []
    priced = [one for one in devices if one.usd < float("inf")]
    limit = most_sensible_cost(
        (one.usd, _waited(one), _spent_usd(one)) for one in priced if not one.is_risky
    )
    near = [one for one in priced if one.usd <= limit]
    large = [
        one
        for one in (*priced, *dear)
        if one.choice.offer.provider in LARGE_CLOUDS
        and not one.one_node.accelerator.is_cpu
        and one.usd < float("inf")
    ]
    has_work = bool(near and near[0].steps)
    wanted: tuple[tuple[Order | None, list[Candidate]], ...] = (
        ("time", sorted(near or devices, key=lambda one: one.order("time"))),
        ("size", sorted(devices, key=lambda one: one.order("size"))),
        (None, sorted(near, key=weight) if has_work else []),
        (None, sorted(large, key=weight) if has_work else []),
    )
    known = {_rented(plan) for plan in chosen}
    extra: list[Plan] = []
    for sort, ordered in wanted:
        tried = list(islice(filter(runs, ordered), TRIES_PER_GROUP)) or ordered[:TRIES_PER_GROUP]
        first = _best_plan(tried, sort, plan_of, max_oom) if sort else None
        for plan in first or _first_plans(tried, 1, plan_of):
            if _rented(plan) not in known:
                known.add(_rented(plan))
                extra.append(plan)
    return extra


def _rented(plan: Plan) -> tuple[object, ...]:
    """Return what a reader sees of a plan: two of the same machines say the same twice."""
    offer = plan.offer
    machines = offer.provider, offer.instance_type, offer.region, offer.purchase, plan.nodes
    return *machines, plan.runnable


def _weight(
    one: Candidate, *, money: Money, needs_build: Callable[[Candidate], bool]
) -> tuple[bool, float]:
    """Return the key by which `recommended` orders plans."""
    return one.is_risky, weight_of(
        one.usd,
        one.seconds / SECONDS_PER_HOUR,
        one.nodes,
        money,
        is_reserved=one.is_reserved,
        other_build=needs_build(one),
        spent_usd=_spent_usd(one),
    )


def _waited(one: Candidate) -> float:
    """Return the hours of the whole job; 0 without an amount of work, where nobody waits for it."""
    return 0.0 if one.steps is None else one.seconds / SECONDS_PER_HOUR


def _spent_usd(one: Candidate) -> float | None:
    """Return the dollars that are spent, where limits say how much is trained for them."""
    if one.limited_by is None:
        return None
    return one.usd_per_hour * one.seconds / SECONDS_PER_HOUR


def _first_plans(candidates: Sequence[Candidate], wanted: int, plan_of: PlanOf) -> list[Plan]:
    plans: list[Plan] = []
    for candidate in candidates:
        if len(plans) == wanted:
            break
        plan = plan_of(candidate)
        if plan is not None:
            plans.append(plan)
    return plans


def mark_ties(plans: list[Plan], sort: Sort | None = None) -> tuple[Plan, ...]:
    """Return the plans numbered from 1, each marked when it cannot be told from the one before.

    Where they are ordered by carbon that is what they emit, else what they cost.
    """
    span = _carbon_span if sort == "carbon" else _span
    marked: list[Plan] = []
    for position, plan in enumerate(plans, start=1):
        tie = bool(marked) and _overlap(marked[-1], plan, span)
        marked.append(plan.model_copy(update={"position": position, "tie_with_previous": tie}))
    return tuple(marked)


def _overlap(first: Plan, second: Plan, span: SpanOf) -> bool:
    """Return whether the intervals of two plans of the same block overlap."""
    if first.stands_apart != second.stands_apart:
        return False
    spans = span(first), span(second)
    if spans[0] is None or spans[1] is None:
        return False
    (low_a, high_a), (low_b, high_b) = spans[0], spans[1]
    return low_a <= high_b and low_b <= high_a


def _carbon_span(plan: Plan) -> tuple[float, float] | None:
    """Return the interval of what `carbon_of` is the likely value of, from power and time."""
    energy, time, kg = plan.energy, plan.step_time_s, carbon_of(plan)
    if energy is None or kg == float("inf"):
        return None
    low = energy.node_power_w_low / energy.node_power_w * time.low / time.value
    return kg * low, kg * energy.node_power_w_high / energy.node_power_w * time.high / time.value


def _span(plan: Plan) -> tuple[float, float] | None:
    """Return the 80 % interval of what `cost_of` is the likely value of."""
    job, time = plan.whole_job, plan.step_time_s
    is_limited = plan.run is not None and plan.run.limited_by is not None
    if job is not None and not is_limited and job.usd_low is not None and job.usd_high is not None:
        beside_usd = job.beside_usd
        return float(job.usd_low + beside_usd), float(job.usd_high + beside_usd)
    usd = cost_of(plan)
    return None if usd is None else (usd * time.low / time.value, usd * time.high / time.value)


def headlines(plans: Sequence[Plan]) -> dict[str, str]:
    """Return ids of the cheapest, the fastest and the smallest of these plans."""
    if not plans:
        return {}
    lines = {
        "fastest": min(plans, key=_by_time).id,
        "smallest": min(plans, key=_by_size).id,
    }
    known = [plan for plan in plans if cost_of(plan) is not None]
    if known:
        lines["cheapest"] = min(known, key=lambda plan: cost_of(plan) or 0.0).id
    return lines


def _by_time(plan: Plan) -> float:
    return 1 / plan.samples_per_s if plan.whole_job is None else plan.whole_job.hours


def _by_size(plan: Plan) -> tuple[float, ...]:
    """Return the key of the smallest plan; of equals, the one whose training costs least."""
    usd = cost_of(plan)
    return plan.accelerators, usd is None, usd or 0.0
