"""Why nothing is feasible, where what was asked for rules it out: what is allowed instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from ....catalog.text.money import format_money
from ....catalog.text.quantity import format_count, format_duration
from ....catalog.units import SECONDS_PER_HOUR
from ....profiles.profile import Profile
from ...cost.whole_job import start_up_s
from ...hardware.device import peak_flops, supported_precisions
from ...plan.plan import Plan
from ...plan.question import Choices, Question
from ..candidate import Candidate
from ..machines.offers import Market
from ..machines.runs_here import stands_apart, torch_build_of, why_not_run
from ..search_space import Space, file_precision, precisions_for

MOST_NAMED = 4
MOST_REPLAYED = 32
"""Candidates of which the memory is replayed to name the least that would be feasible."""
FASTER = 1.5
"""By how much the peak of another precision is larger where it is named. A judgement."""
LEEWAY = 1.2
"""What is proposed is so much above the likely value, which half of such runs exceed."""


def _always(_: Candidate) -> bool:
    return True


def nearest_miss(
    candidates: Sequence[Candidate],
    question: Question,
    profile: Profile,
    *,
    fits: Callable[[Candidate], bool] = _always,
) -> str | None:
    """Return the least that would be feasible, where money or time rules every candidate out.

    Args:
        candidates: all that fit as far as the search counts.
        question: what was asked.
        profile: the model.
        fits: whether the memory of one is enough when it is replayed; what is within the limits
            and does not fit is no miss of a limit.
    """
    money = question.money
    if question.asks_for_work:
        return _no_step(candidates)
    priced = [one for one in candidates if one.steps is not None and one.usd < float("inf")]
    if not priced or (money.budget_usd is None and money.deadline_s is None):
        return None
    if money.budget_usd is not None:
        timely = [
            one for one in priced if money.deadline_s is None or one.seconds <= money.deadline_s
        ]
        least = _first(sorted(timely, key=lambda one: one.usd), question, fits)
        if least is not None:
            return _too_dear(least, float(money.budget_usd), question, profile)
    fastest = _first(sorted(priced, key=lambda one: one.seconds), question, fits)
    if fastest is None or money.deadline_s is None:
        return None
    hours = fastest.seconds / SECONDS_PER_HOUR
    return (
        f"The fastest takes about {format_duration(hours)} ({rented(fastest)}, about"
        f" {format_money(fastest.usd)}):"
        f" give --deadline {_typed(hours * LEEWAY)}, {_wider(fastest, question)}, or less work."
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


def _first(
    candidates: Sequence[Candidate], question: Question, fits: Callable[[Candidate], bool]
) -> Candidate | None:
    """Return the first of these that breaks a limit and fits; None where none of some is so."""
    over = (one for one in candidates if one.breaks(question.money) is not None)
    return next((one for one in islice(over, MOST_REPLAYED) if fits(one)), None)


def _wider(fastest: Candidate, question: Question) -> str:
    """Return what lets more accelerators share a step: nodes, or samples where those do not do."""
    most = max(question.machine.nodes or (question.machine.max_nodes,))
    return "more --max-nodes" if 2 * fastest.nodes > most else "a larger --global-batch"


def others_miss(
    candidates: Sequence[Candidate],
    plans: Sequence[Plan],
    question: Question,
    profile: Profile,
    *,
    fits: Callable[[Candidate], bool] = _always,
) -> Iterator[str]:
    """Yield what the least of the machines that run the file as it is would need.

    Only where money or time leaves none of them: of plans after a port alone it would not be seen.
    """
    if plans and all(plan.stands_apart for plan in plans):
        own = [one for one in candidates if not stands_apart(one.one_node.accelerator, profile)]
        least = nearest_miss(own, question, profile, fits=fits)
        if least is not None:
            yield f"no machine that runs the file as it is keeps to the limits. {least}".rstrip(".")


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


def _no_step(candidates: Sequence[Candidate]) -> str | None:
    """Return what one step costs at least, where limits do not even leave that."""
    priced = [one for one in candidates if one.usd_per_hour < float("inf")]
    if not priced:
        return None

    def hours(one: Candidate) -> float:
        return (start_up_s() + one.mean_step_s) / SECONDS_PER_HOUR

    least = min(priced, key=lambda one: hours(one) * one.usd_per_hour)
    usd = format_money(hours(least) * least.usd_per_hour)
    return (
        f"The set-up and one step take at least about {usd} and"
        f" {format_duration(hours(least))} ({rented(least)}): give more."
    )


def _too_dear(least: Candidate, budget_usd: float, question: Question, profile: Profile) -> str:
    text = (
        f"The cheapest takes about {format_money(least.usd)} ({rented(least)},"
        f" {format_duration(least.seconds / SECONDS_PER_HOUR)}): give --budget"
        f" {math.ceil(least.usd * LEEWAY)}"
    )
    rate = least.usd_per_hour / SECONDS_PER_HOUR
    trained_s = budget_usd / rate - start_up_s()
    if trained_s <= 0 or question.work.steps is not None:
        return f"{text}."
    samples = trained_s / least.mean_step_s * least.global_batch
    if profile.tokens_per_sample is not None:
        tokens = format_count(samples * profile.tokens_per_sample)
        return f"{text}, or {format_money(budget_usd)} trains about {tokens} tokens."
    return f"{text}, or {format_money(budget_usd)} trains about {format_count(samples)} samples."


def rented(candidate: Candidate) -> str:
    """Return what is rented: "aws 2 × p4d.24xlarge"."""  # noqa: RUF002
    offer = candidate.choice.offer
    return f"{offer.provider} {candidate.nodes} × {offer.instance_type}"  # noqa: RUF001


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
            f" ranks take at once: give --global-batch a multiple of {smallest:,}"
        )


def _rank_counts(space: Space, market: Market) -> list[int]:
    """Return how many accelerators the machines make, over every node count with a network."""
    counts = {
        nodes * int(choice.instance.accelerators)
        for choice in market.choices
        for nodes in space.node_counts
        if nodes == 1 or choice.instance.inter_link.bytes_per_s is not None
    }
    return sorted(counts)


def _listed(counts: list[int]) -> str:
    shown = ", ".join(f"{count:,}" for count in counts[:12])
    return f"{shown}, …" if len(counts) > 12 else shown or "one node only"
