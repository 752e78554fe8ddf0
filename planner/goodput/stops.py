"""What stops one plan's run, and what a stop and a checkpoint of it take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...catalog.types import Accelerator, EvictionRow, Offer
from ...catalog.units import SECONDS_PER_HOUR
from ...catalog.vocabulary import Purchase
from ..plan.layout import Layout
from ..plan.parts import ChosenOffer, Evaluation, Stops
from .interruptions import interruption_rate, saved_chance
from .own_stops import (
    NO_OWN_STOPS,
    OwnStops,
    untrained_text,
    with_own_failures,
    with_own_interruptions,
)
from .priors import RatePrior, failure_rate, prior, source_of, stated
from .rates import Rate
from .restarts import Conditions, again_s
from .spread import typical_rate

STEPS_TO_STOP = 2
"""The one that runs when a notice comes, and one more: ranks agree to stop a step later."""


@dataclass(frozen=True, kw_only=True)
class State:
    """What a checkpoint holds, over how many ranks it is spread, and what is evaluated."""

    checkpoint_bytes: float
    """Weights and the optimizer's state, once."""
    parts: int
    """Ranks that hold different parts of it: tensor x pipeline x shard."""
    step_s: float | None = None
    """One step, where gpuplan's runner trains; None: nobody saves it on a cloud's notice."""
    evaluation: Evaluation | None = None
    """What is known of its evaluations; None: they are assumed."""

    @classmethod
    def of(
        cls,
        checkpoint_bytes: float,
        layout: Layout,
        step_s: float | None = None,
        evaluation: Evaluation | None = None,
    ) -> State:
        """Return how a layout spreads a checkpoint."""
        sharded = layout.shard if layout.zero_stage else 1
        parts = layout.tensor * layout.pipeline * sharded
        return cls(
            checkpoint_bytes=checkpoint_bytes, parts=parts, step_s=step_s, evaluation=evaluation
        )


@dataclass(frozen=True, kw_only=True)
class Rented:
    """The machines of a run, as far as their reliability goes."""

    accelerator: Accelerator
    accelerators: int
    nodes: int
    purchase: Purchase
    provider: str
    region: str
    instance_type: str
    own: OwnStops = NO_OWN_STOPS
    """What stopped the user's own runs."""
    eviction: EvictionRow | None = None
    """The seller's chance per hour that spot machines of it are taken away; None: not known."""

    @classmethod
    def of(
        cls,
        offer: Offer | ChosenOffer,
        *,
        accelerator: Accelerator,
        accelerators: int,
        nodes: int,
        purchase: Purchase,
        own: OwnStops = NO_OWN_STOPS,
        eviction: EvictionRow | None = None,
    ) -> Rented:
        """Return so many machines of an offer, bought so.

        Args:
            offer: who sells the machines, and where.
            accelerator: that is in them.
            accelerators: of all nodes together.
            nodes: machines.
            purchase: how they are bought, which may be another way than the offer's.
            own: what stopped the user's own runs.
            eviction: the seller's chance per hour that spot machines of it are taken away.
        """
        return cls(
            accelerator=accelerator,
            accelerators=accelerators,
            nodes=nodes,
            purchase=purchase,
            provider=offer.provider,
            region=offer.region,
            instance_type=offer.instance_type,
            own=own,
            eviction=eviction,
        )


def rate_of(rented: Rented) -> RatePrior:
    """Return how often a run is stopped on these machines, by failures and by the market.

    Spot machines of one zone are taken away together (`interruptions`), so that their nodes count
    once; failures count per accelerator. Both are priors, and what the user's own runs add to them.
    """
    if rented.purchase != "spot":
        return _failures(rented)
    return _failures(rented) + with_own_interruptions(
        interruption_rate(rented.provider, rented.region, rented.instance_type, rented.eviction),
        rented.own,
        (rented.provider, rented.region, rented.accelerator.name),
    )


def _failures(rented: Rented) -> RatePrior:
    device = rented.accelerator
    return with_own_failures(
        failure_rate(device.vendor, rented.accelerators),
        rented.own,
        accelerator=device.name,
        vendor=device.vendor,
    )


def conditions_of(rented: Rented, state: State, *, start_s: float) -> Conditions:
    """Return the rate and the times of a run's stops.

    Args:
        rented: the machines.
        state: what is saved.
        start_s: from a request to set-up machines.

    A checkpoint is copied to the host while training waits and written beside it: until it is
    written, a stop goes back to the one before, which costs that time again.
    """
    times = _times()
    moved_s = state.checkpoint_bytes / (rented.nodes * times.node_bytes_per_s)
    copied_s = state.checkpoint_bytes / state.parts / times.copy_bytes_per_s
    restart_s = times.again_s + start_s + 2 * moved_s
    stall_s = times.fixed_s + copied_s
    wait_s = times.wait_s if rented.purchase == "spot" else 0.0
    rate = rate_of(rented)
    saved = _saved_share(rented, state, stall_s=stall_s, rate=rate.value)
    again = again_s(rate.value.per_s, stall_s, restart_s, wait_s, saved_share=saved)
    return Conditions(
        rate_per_s=rate.typical(again).per_s,
        stall_s=stall_s,
        restart_s=restart_s,
        wait_s=wait_s,
        saved_share=saved,
        evaluation=state.evaluation,
    )


def _saved_share(rented: Rented, state: State, *, stall_s: float, rate: Rate) -> float:
    """Return which share of the stops a notice of the cloud makes harmless."""
    if rented.purchase != "spot" or state.step_s is None:
        return 0.0
    chance = saved_chance(
        rented.provider,
        until_copied_s=STEPS_TO_STOP * state.step_s + stall_s,
        bytes_per_node=state.checkpoint_bytes / rented.nodes,
    )
    return chance * (1 - _failures(rented).value.per_s / rate.per_s)


def stops_of(rented: Rented, state: State, *, start_s: float) -> Stops:
    """Return the same as a plan states it, with the range of the rate and the sources."""
    rate = rate_of(rented)
    found = conditions_of(rented, state, start_s=start_s)
    untrained = untrained_text(rented.own)
    return Stops(
        per_hour=rate.value.per_hour,
        per_hour_low=rate.low.per_hour,
        per_hour_high=rate.high.per_hour,
        checkpoint_bytes=state.checkpoint_bytes,
        stall_s=found.stall_s,
        restart_s=found.restart_s,
        wait_s=found.wait_s,
        saved_share=found.saved_share,
        evaluation=state.evaluation,
        sources=(
            rate.source,
            *((source_of("notice"),) if found.saved_share else ()),
            *(() if untrained is None else (untrained,)),
            source_of("stall"),
            source_of("detection"),
            *map(source_of, _beside_steps(state)),
        ),
    )


def _beside_steps(state: State) -> tuple[str, ...]:
    """Return the sections of what machines do beside their steps, as a run of this state has it."""
    return ("beside_steps",) if state.evaluation is None else ("evaluation", "slow_steps")


def as_conditions(stops: Stops) -> Conditions:
    """Return the conditions of a plan that was made before, with the typical rate of its range."""
    ends = (stops.per_hour, stops.per_hour_low, stops.per_hour_high)
    per_s = [one / SECONDS_PER_HOUR for one in ends]
    again = again_s(
        per_s[0], stops.stall_s, stops.restart_s, stops.wait_s, saved_share=stops.saved_share
    )
    return Conditions(
        rate_per_s=typical_rate(*per_s, again),
        stall_s=stops.stall_s,
        restart_s=stops.restart_s,
        wait_s=stops.wait_s,
        saved_share=stops.saved_share,
        evaluation=stops.evaluation,
    )


@dataclass(frozen=True, kw_only=True)
class _Times:
    """The priors that every run shares: seconds, and bytes per second."""

    fixed_s: float
    copy_bytes_per_s: float
    node_bytes_per_s: float
    again_s: float
    wait_s: float


@cache
def _times() -> _Times:
    return _Times(
        fixed_s=stated("stall", "fixed_s"),
        copy_bytes_per_s=stated("stall", "copy_bytes_per_s"),
        node_bytes_per_s=prior("disk").value,
        again_s=prior("detection").value + prior("warm_up").value,
        wait_s=prior("spot_wait").value,
    )
