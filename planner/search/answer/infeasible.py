"""Why nothing is feasible, where what was asked for rules it out: what is allowed instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ....catalog.names import shown_instance
from ....catalog.text.money import format_money
from ....catalog.text.quantity import format_count, format_duration
from ....catalog.units import SECONDS_PER_HOUR
from ....profiles.profile import Profile
from ...hardware.device import peak_flops, supported_precisions
from ...plan.plan import Plan
from ...plan.question import Choices, Question
from ..batch_rule import evenly_near
from ..candidate import Candidate
from ..machines.offers import Market
from ..machines.runs_here import stands_apart, torch_build_of, why_not_run
from ..search_space import Space, file_precision, precisions_for

MOST_NAMED = 4
MOST_REPLAYED = 32
"""Candidates of which the memory is replayed to name the least that would be feasible."""
MOST_PLANNED = 4
"""Those that fit of which the whole plans are compared. A judgement."""
DIGITS = 2
"""Of the amount of work that is named: its interval is wider than that."""
FASTER = 1.5
"""By how much the peak of another precision is larger where it is named. A judgement."""
LEEWAY = 1.2
"""What is proposed is so much above the likely value, which half of such runs exceed."""


PlanOf = Callable[[Candidate], Plan | None]
"""Finishes a candidate with its memory replayed; None where that is short after all."""


@dataclass(frozen=True, kw_only=True)
class _Missed:
    """A candidate that breaks a limit, with what its whole plan takes."""

    candidate: Candidate
    usd: float
    hours: float

    @property
    def text(self) -> str:
        """What it is, takes and costs."""
        return f"{rented(self.candidate)}, {format_duration(self.hours)}"

    @property
    def budget_words(self) -> str:
        """The option that allows it."""
        usd = max(self.usd, self.candidate.ranked_usd) * LEEWAY
        unit = _unit(usd)
        return f"--budget {math.ceil(usd / unit) * unit}"

    @property
    def deadline_words(self) -> str:
        """The option that gives it the time."""
        hours = max(self.hours, self.candidate.seconds / SECONDS_PER_HOUR)
        return f"--deadline {_typed(hours * LEEWAY)}"


def nearest_miss(
    candidates: Sequence[Candidate], question: Question, profile: Profile, *, plan_of: PlanOf
) -> str | None:
    """Return the least that would be feasible, where money or time rules every candidate out.

    Machines that run the file as it is are named where there are any.

    Args:
        candidates: all that fit as far as the search counts.
        question: what was asked.
        profile: the model.
        plan_of: finishes one; what is within the limits and does not fit is no miss of a limit.
    """
    money = question.money
    if question.asks_for_work:
        return _no_step(candidates)
    known = [one for one in candidates if one.steps is not None]
    priced = [one for one in known if math.isfinite(one.usd)]
    # Of machines of the user's own without a price it is still known how long they take.
    priced = priced or (known if money.budget_usd is None else [])
    if not priced or (money.budget_usd is None and money.deadline_s is None):
        return None
    own = [one for one in priced if not stands_apart(one.one_node.accelerator, profile)]
    priced = own or priced
    timely = [one for one in priced if money.deadline_s is None or one.seconds <= money.deadline_s]
    if money.budget_usd is not None:
        cheapest = _cheapest(timely, question, plan_of)
        if cheapest is not None:
            return _too_dear(cheapest, question, profile)
    fastest = _fastest(priced, question, plan_of)
    if fastest is None or money.deadline_s is None:
        return None
    text = f"The fastest takes about {format_duration(fastest.hours)}"
    dollars = f", about {_about(fastest.usd)}" if math.isfinite(fastest.usd) else ""
    where = f"{rented(fastest.candidate)}{dollars}"
    if money.budget_usd is not None and fastest.usd > money.budget_usd:
        cheapest = _cheapest(priced, question, plan_of) or fastest
        return (
            f"Both limits are too small. {text} ({where}), and the cheapest"
            f" {_about(cheapest.usd)} ({cheapest.text}): give"
            f" {cheapest.budget_words} {cheapest.deadline_words}, or less work."
        )
    return (
        f"{text} ({where}): give {fastest.deadline_words},"
        f" {_wider(fastest.candidate, question)}, or less work."
    )


def tried_without_precision(
    candidates: Sequence[Candidate], question: Question, profile: Profile
) -> str | None:
    """Return that faster arithmetic is tried where no precision is named, if there is any.

    The profile may lack the trace of it, so that what it would take is not known here.
    """
    asked = question.choices.precisions
    if not asked or not candidates:
        return None
    device = min(candidates, key=lambda one: one.usd).one_node.accelerator
    free = precisions_for(device, profile, replace(question.choices, precisions=()), fixed=False)
    peaks = {one: peak_flops(device, one) or 0.0 for one in (*asked, *free)}
    best = max(free, key=peaks.__getitem__, default=asked[0])
    now = max(peaks[one] for one in asked)
    if peaks[best] < FASTER * now:
        return None
    return (
        f"Without --precision {','.join(asked)} {best} is tried too, of which {device.name} has"
        f" {peaks[best] / now:.0f} times the peak."
    )


def _cheapest(
    candidates: Sequence[Candidate], question: Question, plan_of: PlanOf
) -> _Missed | None:
    """Return the cheapest that breaks a limit and fits; None where none of some is so."""
    found = _missed(sorted(candidates, key=lambda one: one.ranked_usd), question, plan_of)
    return min(found, key=lambda one: one.usd, default=None)


def _fastest(
    candidates: Sequence[Candidate], question: Question, plan_of: PlanOf
) -> _Missed | None:
    """Return the fastest that breaks a limit and fits; None where none of some is so."""
    found = _missed(sorted(candidates, key=lambda one: one.seconds), question, plan_of)
    return min(found, key=lambda one: one.hours, default=None)


def _missed(candidates: Sequence[Candidate], question: Question, plan_of: PlanOf) -> list[_Missed]:
    """Return the first that break a limit and fit, with what their whole plans take.

    The search's own sums leave out what hardly changes an order, so some are looked at.
    """
    over = (one for one in candidates if one.breaks(question.money) is not None)
    planned = ((one, plan_of(one)) for one in islice(over, MOST_REPLAYED))
    known = (
        _Missed(candidate=one, usd=math.inf if usd is None else usd, hours=plan.job.hours)
        for one, plan in planned
        if plan is not None and plan.job is not None
        for usd in (plan.usd_ends[1],)
    )
    return list(islice(known, MOST_PLANNED))


def _wider(fastest: Candidate, question: Question) -> str:
    """Return what lets more accelerators share a step: nodes, or samples where those do not do."""
    own = fastest.choice.own_nodes
    if own is not None and 2 * fastest.nodes > own:
        return f"more machines ({_there_are(own)} by `nodes` in your offers file)"
    most = max(question.machine.nodes or (question.machine.max_nodes,))
    return "more --max-nodes" if 2 * fastest.nodes > most else "a larger --global-batch"


def others_miss(
    candidates: Sequence[Candidate],
    plans: Sequence[Plan],
    question: Question,
    profile: Profile,
    *,
    plan_of: PlanOf,
) -> Iterator[str]:
    """Yield what the least of the machines that run the file as it is would need.

    Only where money or time leaves none of them: of plans after a port alone it would not be seen.
    """
    if plans and all(plan.stands_apart for plan in plans):
        own = [one for one in candidates if not stands_apart(one.one_node.accelerator, profile)]
        least = nearest_miss(own, question, profile, plan_of=plan_of)
        if least is not None:
            yield f"no machine that runs the file as it is keeps to the limits. {least}".rstrip(".")


def none_of_so_many(candidates: Sequence[Candidate]) -> str | None:
    """Return how many there are of the user's own machines, where all that fits is on more."""
    most = {one.choice.own_nodes: one for one in candidates if one.choice.own_nodes is not None}
    if not most:
        return None
    nodes = max(most)
    offer = most[nodes].choice.offer
    name = shown_instance(offer.provider, offer.instance_type)
    there = _there_are(nodes).capitalize()
    return (
        f"{there} × {offer.provider} {name} by `nodes` in your offers file, and every plan takes"  # noqa: RUF001
        " more: give fewer --nodes, or more there."
    )


def _there_are(nodes: int) -> str:
    return f"there {'is' if nodes == 1 else 'are'} {nodes}"


def none_is_run(candidates: Sequence[Candidate], profile: Profile) -> str | None:
    """Return that gpuplan runs none of the candidates that fit, and why not the first of them."""
    if not candidates:
        return None
    first = min(candidates, key=lambda one: one.order("cost"))
    accelerator = first.one_node.accelerator
    older = torch_build_of(accelerator, profile).is_older
    why = why_not_run(first.setup, accelerator, profile)
    if why is None and older:
        why = f"It needs an older release of torch than {profile.torch_version}."
    count = sum(one.variants_that_fit for one in candidates)
    return (
        f"{count:,} plans fit, and gpuplan runs none of them: leave --runnable out to see them."
        f" The first is on {rented(first)}. {why or ''}"
    ).rstrip()


def not_sold_so(market: Market, question: Question) -> str | None:
    """Return that nothing of what is asked for has a spot price, where that is asked for.

    Of terms `notes.no_terms_note` says it.
    """
    machines = {(one.offer.provider, one.offer.instance_type) for one in market.choices}
    known = any(one.usd_per_hour is not None for one in market.choices)
    if question.money.purchase != "spot" or not machines or known:
        return None
    several = f"{len(machines):,} types of machine that are asked for"
    of = several if len(machines) > 1 else "machine that is asked for"
    return f"No spot price is known of the {of}: leave --spot out, or ask other sellers."


def _no_step(candidates: Sequence[Candidate]) -> str | None:
    """Return what one step costs at least, where limits do not even leave that."""
    priced = [one for one in candidates if one.usd_per_hour < float("inf")]
    if not priced:
        return None

    def hours(one: Candidate) -> float:
        return (one.start_s + one.mean_step_s) / SECONDS_PER_HOUR

    least = min(priced, key=lambda one: hours(one) * one.usd_per_hour)
    usd = format_money(hours(least) * least.usd_per_hour)
    return (
        f"The set-up and one step take at least about {usd} and"
        f" {format_duration(hours(least))} ({rented(least)}): give more."
    )


def nothing_fits(market: Market, question: Question) -> str:
    """Return that memory rules everything out, with what of the question leaves more room."""
    choices, machine = question.choices, question.machine
    fixed = {
        "--layout": choices.layouts,
        "--micro-batch": choices.micro_batches,
        "--recompute": choices.recomputes,
        "--precision": choices.precisions,
        "--offload": choices.offload is not None,
    }
    given = [option for option, value in fixed.items() if value]
    ways = [f"leave {' and '.join(given)} out"] if given else []
    ways += ["give more --nodes" if machine.nodes else "give more --max-nodes"]
    ways += ["take an accelerator with more memory"]
    names = sorted({choice.accelerator.name for choice in market.choices})
    listed = ", ".join(names[:MOST_NAMED]) + (" …" if len(names) > MOST_NAMED else "")
    return (
        f"Nothing that was tried fits in the memory of {listed}: {', '.join(ways[:-1])}, or"
        f" {ways[-1]}; `gpuplan fits` shows how much is missing."
    )


def _too_dear(least: _Missed, question: Question, profile: Profile) -> str:
    money, candidate = question.money, least.candidate
    in_time = "" if money.deadline_s is None else " within the deadline"
    text = (
        f"The cheapest{in_time} takes about {_about(least.usd)} ({least.text}): give"
        f" {least.budget_words}"
    )
    steps = candidate.within(money).steps
    if not steps or question.work.steps is not None or money.budget_usd is None:
        return f"{text}."
    # The search's own sum is below its plan's, so that the budget would not do for as many steps.
    share = min(1.0, candidate.ranked_usd / least.usd)
    samples = steps * candidate.global_batch * share
    budget = format_money(float(money.budget_usd))
    if profile.tokens_per_sample is not None:
        tokens = format_count(_rounded_down(samples * profile.tokens_per_sample))
        return f"{text}, or {budget} trains about {tokens} tokens."
    return f"{text}, or {budget} trains about {format_count(_rounded_down(samples))} samples."


def _unit(usd: float) -> int:
    """Return the last of three digits that a sum of dollars is said with, a dollar at least."""
    return 10 ** max(0, math.floor(math.log10(usd)) - 2) if usd > 0 else 1


def _about(usd: float) -> str:
    """Return a sum that is only about right, to three digits: "$171,000", "$87.30"."""
    unit = _unit(usd)
    return format_money(usd if unit == 1 else round(usd / unit) * unit)


def _rounded_down(amount: float) -> float:
    """Return an amount as it is said, and never more: what is said may be asked for."""
    unit = 10.0 ** (math.floor(math.log10(amount)) - DIGITS + 1)
    return math.floor(amount / unit) * unit


def rented(candidate: Candidate) -> str:
    """Return what is rented: "aws 2 × p4d.24xlarge"."""  # noqa: RUF002
    offer = candidate.choice.offer
    name = shown_instance(offer.provider, offer.instance_type)
    return f"{offer.provider} {candidate.nodes} × {name}"  # noqa: RUF001


def _typed(hours: float) -> str:
    """Return a span of time as it is typed."""
    return f"{math.ceil(hours)}h" if hours >= 2 else f"{math.ceil(hours * 60)}min"


def reasons(space: Space, market: Market, profile: Profile, choices: Choices) -> Iterator[str]:
    """Yield one sentence for every choice that no machine of the market can follow."""
    if market.without_spec and not market.choices:
        yield (
            "no specification of these accelerators is known, so nothing about them can be"
            " predicted: describe them in a file for --offers"
        )
    if market.choices:
        yield from _layouts(space, market)
        yield from _precisions(space, market, profile, choices)
        yield from _global_batch(space, market)


def _layouts(space: Space, market: Market) -> Iterator[str]:
    for layout in space.layouts:
        if layout.accelerators not in (counts := _rank_counts(space, market)):
            yield (
                f"{layout} takes {layout.accelerators:,} accelerators, but these machines come as"
                f" {_listed(counts)}"
            )


def _precisions(space: Space, market: Market, profile: Profile, choices: Choices) -> Iterator[str]:
    devices = {choice.accelerator.name: choice.accelerator for choice in market.choices}
    if any(precisions_for(d, profile, choices, fixed=space.fixed) for d in devices.values()):
        return
    asked = choices.precisions or (file_precision(profile) or "fp32",)
    whose = "" if choices.precisions else ", which the model file sets"
    for name in sorted(devices)[:MOST_NAMED]:
        able = ", ".join(supported_precisions(devices[name]))
        yield f"{name} has no units for {', '.join(asked)}{whose}: give --precision one of {able}"


def _global_batch(space: Space, market: Market) -> Iterator[str]:
    wanted = space.global_batch
    counts = [layout.data for layout in space.layouts] or _rank_counts(space, market)
    if wanted is None or not counts:
        return
    smallest = min(counts) * int(space.micro_batches.min()) * min(space.grad_accums, default=1)
    if wanted % smallest:
        yield (
            f"a global batch of {wanted:,} is not a multiple of {smallest:,}, the samples that the"
            f" ranks take at once: give --global-batch a multiple of {smallest:,}, such as"
            f" {evenly_near(wanted / smallest) * smallest:,}"
        )


def _rank_counts(space: Space, market: Market) -> list[int]:
    """Return how many accelerators the machines make, over every node count with a network."""
    counts = {
        nodes * int(choice.instance.accelerators)
        for choice in market.choices
        for nodes in (*space.node_counts, *space.nodes_of(int(choice.instance.accelerators)))
        if nodes == 1 or choice.instance.inter_link.bytes_per_s is not None
    }
    return sorted(counts)


def _listed(counts: list[int]) -> str:
    shown = ", ".join(f"{count:,}" for count in counts[:12])
    return f"{shown}, …" if len(counts) > 12 else shown or "one node only"
