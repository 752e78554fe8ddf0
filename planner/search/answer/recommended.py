"""The plan that a person would rent: a knee of cost against time among the sensible plans.

docs/how-to-read-an-answer.md has the rules of this file as a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from ....catalog.text.quantity import format_count
from ....catalog.units import HOURS_PER_DAY, SECONDS_PER_HOUR
from ...cost.beside_machines.in_order import ranked_usd
from ...cost.start_up import start_up_s
from ...plan.answer.answer_parts import Recommended
from ...plan.plan import Plan
from ...plan.question import Money
from ...plan.runnable import RUN_STACKS

FEWEST_STEPS = 500
"""Of a plan with a batch of its own: fewer leave a learning rate no schedule."""
MOST_HOURS = 60 * HOURS_PER_DAY
"""Unless the deadline is later: nobody waits longer for a run without saying so."""
MOST_OF_CHEAPEST = 2.0
"""Cost over the least that a plan costs with its waiting, unless a deadline is given."""
PATIENCE_HOURS = 7 * HOURS_PER_DAY
"""Waiting so long weighs as much as the cost itself; with a deadline, all the time until then."""
LEAST_USD_PER_DAY = 20.0
"""What a day of waiting weighs at least: somebody looks at a run for a quarter of an hour a day, at
the $70 an hour of a software developer (mean of May 2024, U.S. Bureau of Labor Statistics,
https://www.bls.gov/oes/current/oes151252.htm), rounded. Without it $18 for five days on one old
device would come before $70 for four hours. The quarter of an hour is a judgement."""
OTHER_BUILD_USD = 20.0
"""What it weighs, once, that a device needs a build of torch which pip does not bring: somebody
looks for a quarter of an hour whether all that the file imports is to be had for it. A
judgement."""
SEVERAL_NODES_USD = 20.0
"""What it weighs, once, that a job runs on several nodes: somebody looks for a quarter of an hour
whether they reach each other, and at what speed. Two nodes for 50 minutes are not worth that beside
one for an hour and a half. A judgement."""
DOUBLING = 0.05
"""What twice the nodes weigh, as a share of the cost: each must be had at the same moment, in one
place, and any of them may fail. A judgement, not a measurement."""
RESERVED = 0.25
"""What it weighs, as a share of the cost, that machines are usually had by reservation only. A
judgement."""
LIKELY = 0.9
"""Chance of keeping to a limit from which it is not mentioned."""
SURE = 0.8
"""Chance of keeping to a limit below which a surer plan is taken, and the chance is said first."""
NEARLY = 0.1
"""Cost over that of the lightest plan, as a share, that a surer one may have. A judgement."""
SURER = 0.05
"""Difference of chances that is worth a word."""
ALIKE = 0.02
"""Costs that differ by less are the same to a reader."""


def sensible(
    plans: Sequence[Plan], money: Money, *, is_batch_free: bool = False
) -> tuple[Plan, ...]:
    """Return the plans that a person would consider; the headlines are chosen among them.

    Args:
        plans: finished plans.
        money: limits that were given, and the risk of running out of memory that is accepted.
        is_batch_free: whether each plan has a global batch of its own.
    """
    found = [
        plan
        for plan in plans
        if not plan.stands_apart
        and not plan.offer.is_cpu
        and (plan.p_oom is None or plan.p_oom <= money.max_oom)
        and plan.needs_build != "older"
    ]
    found = [plan for plan in found if plan.runnable is not False] or found
    if is_batch_free:
        found = [p for p in found if p.run is None or p.run.steps >= FEWEST_STEPS] or found
    if money.deadline_s is None:
        found = [p for p in found if p.whole_job is None or p.whole_job.hours <= MOST_HOURS]
        if any(plan.whole_job is not None for plan in found):
            jobs = (
                (cost, _hours(plan), _spent_usd(plan))
                for plan in found
                if (cost := cost_of(plan)) is not None
            )
            limit = most_sensible_cost(jobs)
            found = [p for p in found if (cost := cost_of(p)) is None or cost <= limit]
    return tuple(found)


def cost_of(plan: Plan) -> float | None:
    """Return dollars of the whole job, or of a million samples; None where no price is known.

    With what is surely paid beside the machines, at the highest price where none is known.
    Where limits say how much is trained: the reciprocal of the samples, which ranks alike.
    """
    if _limited(plan) and plan.run is not None and plan.run.trained_samples:
        return 1 / plan.run.trained_samples
    if plan.whole_job is not None:
        usd = plan.whole_job.usd
        if usd is None:
            return None
        return float(usd) + ranked_usd(plan.whole_job.data_lines, plan.offer.tax_percent)
    return plan.usd_per_million_samples


def weight(plan: Plan, money: Money) -> float:
    """Return what a plan weighs; the lightest is recommended.

    The cost, the waiting, another build of torch and several nodes, times 1 + a share for every
    doubling of the nodes, and more where machines are usually had by reservation only; infinite
    where the price or the amount of work is not known.
    """
    cost = cost_of(plan)
    if cost is None or plan.whole_job is None:
        return math.inf
    return weight_of(
        cost,
        plan.whole_job.hours,
        plan.nodes,
        money,
        is_reserved=plan.usually_reserved,
        other_build=plan.needs_build is not None,
        spent_usd=_spent_usd(plan),
    )


def weight_of(
    cost: float,
    hours: float,
    nodes: int,
    money: Money,
    *,
    is_reserved: bool,
    other_build: bool = False,
    spent_usd: float | None = None,
) -> float:
    """Return what a job weighs that costs and takes so much on so many nodes (`weight`).

    All its hours weigh the share of the cost that they are of the patience, and at least
    `LEAST_USD_PER_DAY`.

    Args:
        cost: as `cost_of`.
        hours: from the request to the end.
        nodes: rented at the same time.
        money: limits that were given.
        is_reserved: whether the machines are usually had by reservation only.
        other_build: whether torch must be of a build that pip does not bring.
        spent_usd: the dollars behind a cost that is the reciprocal of what is trained.
    """
    patience = PATIENCE_HOURS
    if money.deadline_s is not None:
        patience = money.deadline_s / SECONDS_PER_HOUR
    waiting = max(cost * hours / patience, _as_cost(waiting_usd(hours), cost, spent_usd))
    once = (OTHER_BUILD_USD if other_build else 0.0) + (SEVERAL_NODES_USD if nodes > 1 else 0.0)
    hard_to_get = 1 + RESERVED if is_reserved else 1.0
    weighed = cost + waiting + _as_cost(once, cost, spent_usd)
    return hard_to_get * weighed * (1 + DOUBLING * math.log2(nodes))


def waiting_usd(hours: float) -> float:
    """Return the dollars that so many hours of waiting weigh at least."""
    return LEAST_USD_PER_DAY * hours / HOURS_PER_DAY


def _as_cost(usd: float, cost: float, spent_usd: float | None) -> float:
    """Return dollars in the unit of a cost for which so many are spent; None: it is dollars."""
    if spent_usd is None:
        return usd
    return cost * usd / spent_usd if spent_usd else 0.0


def most_sensible_cost(jobs: Iterable[tuple[float, float, float | None]]) -> float:
    """Return what a sensible plan costs at most.

    What is cheap only because it takes weeks sets no limit to what ends today.

    Args:
        jobs: `cost`, `hours` and `spent_usd` of each plan that fits, as `weight_of` takes them.
    """
    whole = (cost + _as_cost(waiting_usd(hours), cost, usd) for cost, hours, usd in jobs)
    return MOST_OF_CHEAPEST * min(whole, default=0.0)


def recommended(plans: Sequence[Plan], money: Money) -> Recommended | None:
    """Return the lightest of the sensible plans with its reason, or None if there is none."""
    priced = [plan for plan in plans if math.isfinite(weight(plan, money))]
    if not priced:
        return _of_own_machines(plans)
    # Of equally light plans the first, which is the one that stands higher in the list.
    plan = _surer(min(priced, key=lambda one: weight(one, money)), priced, money)
    cheapest = min(priced, key=lambda one: cost_of(one) or 0.0)
    least = cost_of(cheapest)
    # Machines of one's own may cost nothing; then so does the lightest plan.
    gap = (cost_of(plan) or 0.0) / least - 1 if least else 0.0
    return Recommended(
        id=plan.id,
        position=plan.position,
        reason=_reason(plan, cheapest, gap, money),
        gap_to_cheapest=gap,
    )


def _of_own_machines(plans: Sequence[Plan]) -> Recommended | None:
    """Return the first plan to end where all are on machines of the user's own without a price."""
    own = [one for one in plans if one.offer.is_own and one.whole_job is not None]
    if not own or len(own) < len(plans):
        return None
    plan = min(own, key=_hours)
    words = "the fastest on what is your own, whose price is not known"
    return Recommended(
        id=plan.id,
        position=plan.position,
        reason=_with_doubts(plan, [words]),
        gap_to_cheapest=0.0,
    )


def _limited(plan: Plan) -> bool:
    """Return whether limits say how much is trained: then what `cost_of` returns is no sum."""
    return plan.run is not None and plan.run.limited_by is not None


def _spent_usd(plan: Plan) -> float | None:
    """Return the dollars that a plan spends, where what `cost_of` returns is no sum of them."""
    if not _limited(plan) or plan.whole_job is None:
        return None
    return float(plan.whole_job.usd or 0)


def _hours(plan: Plan) -> float:
    """Return the hours of the whole job; 0 without an amount of work, where nobody waits for it."""
    return 0.0 if plan.whole_job is None else plan.whole_job.hours


def keeps_limits(plan: Plan) -> float:
    """Return the chance that a plan keeps to deadline and budget, whichever is the less likely."""
    return min(limit_chances(plan).values(), default=1.0)


def limit_chances(plan: Plan) -> dict[str, float]:
    """Return the chance of keeping to each limit that was given: "the deadline", "the budget".

    Where limits say how much is trained there is none.
    """
    run = plan.run
    if run is None or run.limited_by is not None:
        return {}
    found = {"the deadline": run.deadline_probability, "the budget": run.budget_probability}
    return {limit: chance for limit, chance in found.items() if chance is not None}


def _surer(lightest: Plan, priced: Sequence[Plan], money: Money) -> Plan:
    """Return the lightest plan, or one that is surer of the limits and costs nearly the same."""
    if keeps_limits(lightest) >= SURE:
        return lightest
    most = (1 + NEARLY) * (cost_of(lightest) or 0.0)
    sure = [one for one in priced if keeps_limits(one) >= SURE and (cost_of(one) or 0.0) <= most]
    return min(sure, key=lambda one: weight(one, money), default=lightest)


def _reason(plan: Plan, cheapest: Plan, gap: float, money: Money) -> str:
    assert plan.whole_job is not None and cheapest.whole_job is not None
    parts = []
    if plan.run is not None and plan.run.limited_by is not None:
        parts.append(_share_of_most(plan, cheapest, gap))
        parts.extend(_surely_trained(plan))
    elif plan.id == cheapest.id:
        parts.append("the cheapest worth renting; none faster is worth its price")
    else:
        parts.append(_against(plan, cheapest, gap, money))
    return _with_doubts(plan, parts)


def _with_doubts(plan: Plan, parts: list[str]) -> str:
    """Return what speaks for a plan, with how sure it is to fit and to keep to the limits."""
    if plan.p_oom is not None:
        parts.append(f"{_sure(plan.p_oom)} sure to fit")
    doubts = limit_chances(plan).items()
    first = [f"only {_sure_of(limit, p)}" for limit, p in doubts if p < SURE]
    last = [_sure_of(limit, p) for limit, p in doubts if SURE <= p < LIKELY]
    return "; ".join([*first, *parts, *last, *_not_run(plan)])


def _sure_of(limit: str, chance: float) -> str:
    return f"{chance * 100:.0f} % sure to keep to {limit}"


def _not_run(plan: Plan) -> Iterator[str]:
    """Yield that gpuplan cannot run a plan, and what can."""
    if plan.runnable is not False:
        return
    tool = None if plan.stack in RUN_STACKS else plan.stack
    if plan.frozen_precision == "nf4":
        tool = "bitsandbytes"
    of = "" if tool is None else f" with {tool}"
    yield f"gpuplan cannot run it, a script of your own{of} can (gpuplan show)"


def _share_of_most(plan: Plan, most: Plan, gap: float) -> str:
    """Return how much a plan trains of what the sensible plan that trains the most does."""
    if gap < ALIKE:
        return "trains the most of the plans worth renting"
    facts = [most.devices, _takes(_hours(most))]
    if most.needs_build is not None and plan.needs_build is None:
        facts.append("with another build of torch")
    return f"trains {100 / (1 + gap):.0f} % of the most ({', '.join(facts)})"


def _surely_trained(plan: Plan) -> Iterator[str]:
    """Yield how much a plan trains with its limit kept nine times in ten.

    The likely amount keeps it every other time. Of cost and time nine in ten lie below the high end
    of their intervals, and both grow with the amount but for what the start takes.
    """
    run, job = plan.run, plan.job
    if run is None or job is None:
        return
    _, likely, high = plan.usd_ends
    if run.limited_by == "deadline":
        likely, high = job.hours, job.hours_high
    amount, unit = run.trained_tokens, "tokens"
    if amount is None:
        amount, unit = run.trained_samples, "samples"
    started = start_up_s(is_own=plan.offer.is_own) / SECONDS_PER_HOUR / job.hours
    # Where the start is nearly all of it, hardly any amount is sure.
    if likely and high and amount is not None and started < 1:
        limit = "the time" if run.limited_by == "deadline" else "the budget"
        surely = amount * (1 - started) / (high / likely - started)
        yield f"9 times in 10 {limit} is enough for {format_count(surely)} {unit}"


def _against(plan: Plan, cheapest: Plan, gap: float, money: Money) -> str:
    """Return what a plan costs and has beside the cheapest; in dollars where it is twice that."""
    advantage = _advantage(plan, cheapest, money)
    if gap < ALIKE:
        return f"costs what the cheapest does, {advantage}"
    if gap < 1:
        return f"{gap * 100:.0f} % above the cheapest, {advantage}"
    more = (cost_of(plan) or 0.0) - (cost_of(cheapest) or 0.0)
    takes = _takes(_hours(cheapest))
    dollars = f"${more:,.0f}" if more >= 5 else f"${more:.2f}"
    return f"{advantage}, for {dollars} more than the cheapest, which takes {takes}"


def _takes(hours: float) -> str:
    if hours < 1:
        return f"{hours * SECONDS_PER_HOUR / 60:.0f} min"
    if hours < 5:
        return f"{hours:.1f} h"
    return f"{hours:.0f} h" if hours < 2 * HOURS_PER_DAY else f"{hours / HOURS_PER_DAY:.0f} days"


def _advantage(plan: Plan, cheapest: Plan, money: Money) -> str:
    """Return what a plan has before the cheapest, each of which may make it the lighter."""
    assert plan.whole_job is not None and cheapest.whole_job is not None
    ratio = cheapest.whole_job.hours / plan.whole_job.hours
    if ratio >= 1.1:
        times = f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"
        faster = "twice as fast" if 1.9 <= ratio <= 2.1 else f"{times} times as fast"
        # Minutes saved are not what makes it the lighter where the build of torch alone does.
        usual = cheapest.model_copy(update={"needs_build": None})
        by_build = plan.needs_build is None and weight(usual, money) < weight(plan, money)
        return f"runs with the torch that pip brings, {faster}" if by_build else faster
    if cheapest.usually_reserved and not plan.usually_reserved:
        return "usually had without a reservation"
    if keeps_limits(plan) > keeps_limits(cheapest) + SURER:
        return "surer to keep to what is allowed"
    if cheapest.needs_build is not None and plan.needs_build is None:
        return "runs with the torch that pip brings"
    return "on fewer nodes" if plan.nodes < cheapest.nodes else "as fast"


def _sure(p_oom: float) -> str:
    """Return the chance of fitting, never rounded up to certainty."""
    return f"{min(math.floor((1 - p_oom) * 1000) / 10, 99.9):g} %"
