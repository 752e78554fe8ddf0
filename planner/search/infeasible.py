"""Why nothing is feasible, where what was asked for rules it out: what is allowed instead."""

from __future__ import annotations

from collections.abc import Iterator

from ...profiles.profile import Profile
from ..hardware.device import supported_precisions
from ..plan.question import Choices
from .offers import Market
from .search_space import Space, file_precision, precisions_for

MOST_NAMED = 4


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
