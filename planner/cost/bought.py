"""What stops a finished plan's run when its machines are bought in another way than planned."""

from __future__ import annotations

from ...catalog.types import Accelerator, EvictionRow
from ...catalog.units import SECONDS_PER_HOUR
from ...catalog.vocabulary import Purchase
from ..goodput.evaluations import respaced
from ..goodput.expected_run import expected_run, interval_s
from ..goodput.own_stops import NO_OWN_STOPS, OwnStops
from ..goodput.stops import Rented, State, as_conditions, stops_of
from ..plan.parts import Estimated, Stops
from ..plan.plan import Plan
from .start_up import start_up_s

SHORT_RUN_S = 4.0 * SECONDS_PER_HOUR
"""Runs below are taken as this long where a share of a run is asked for: a run of minutes has one
checkpoint, whose seconds would be a large share of it and say nothing of how slow its steps are.
At the half hour that is the most between two checkpoints, four hours hold eight. It is
a choice, not a measurement."""
SHORTEST_INTERVAL_S = 60.0
"""Between checkpoints, for a launch: a run that is wrongly predicted must not only save."""


def stops_bought(
    plan: Plan,
    accelerator: Accelerator | None,
    purchase: Purchase,
    own: OwnStops = NO_OWN_STOPS,
    *,
    own_script: bool = False,
    eviction: EvictionRow | None = None,
    eval_every: int | None = None,
) -> Stops | None:
    """Return what stops a plan's run on machines bought so, by priors and the user's own runs.

    A script of the user's own is not counted on to save anything when a cloud gives notice. None
    for a plan of a version that did not look, or on an accelerator that is not known. Where the
    plan says what evaluations take, those after every `eval_every` steps take their share of it.
    """
    if plan.stops is None or accelerator is None:
        return plan.stops
    rented = Rented.of(
        plan.offer,
        accelerator=accelerator,
        accelerators=plan.accelerators,
        nodes=plan.nodes,
        purchase=purchase,
        own=own,
        eviction=eviction,
    )
    step_s = plan.step_time_s.value if plan.runnable and not own_script else None
    known, steps = plan.stops.evaluation, None if plan.run is None else plan.run.steps
    if known is not None and eval_every is not None:
        known = respaced(known, eval_every, steps)
    state = State.of(plan.stops.checkpoint_bytes, plan.layout, step_s, known)
    return stops_of(rented, state, start_s=start_up_s(is_own=plan.offer.is_own))


def slower_than_steps(stops: Stops | None, training_s: float) -> float:
    """Return what a run takes for every second of its steps, in 9 of 10 cases no more.

    Checkpoints, evaluation, slow steps and failures count, at this very step time; 1 where nothing
    is known of stops. A short run counts as one of four hours, whose one checkpoint is no share.
    """
    if stops is None:
        return 1.0
    whole_s = max(training_s, SHORT_RUN_S)
    exactly = Estimated(value=whole_s, low=whole_s, high=whole_s, basis="measured")
    return expected_run(exactly, stops).high_s / whole_s


def checkpoint_every_s(stops: Stops) -> float:
    """Return how often a launch writes a checkpoint, seconds: as often as costs least."""
    return max(SHORTEST_INTERVAL_S, interval_s(as_conditions(stops)))
