"""What stops a finished plan's run when its machines are bought in another way than planned."""

from __future__ import annotations

from ...catalog.types import Accelerator
from ...catalog.vocabulary import Purchase
from ..goodput.expected_run import expected_run, interval_s
from ..goodput.stops import Rented, State, as_conditions, stops_of
from ..plan.parts import Estimated, Stops
from ..plan.plan import Plan
from .whole_job import start_up_s

SHORT_RUN_S = 4 * 3600.0
SHORTEST_INTERVAL_S = 60.0
"""Between checkpoints, for a launch: a run that is wrongly predicted must not only save."""


def stops_bought(plan: Plan, accelerator: Accelerator | None, purchase: Purchase) -> Stops | None:
    """Return what stops a plan's run on machines bought so.

    None for a plan of a version that did not look, or on an accelerator that is not known.
    """
    if plan.stops is None or accelerator is None:
        return plan.stops
    offer = plan.offer
    rented = Rented(
        accelerator=accelerator,
        accelerators=plan.accelerators,
        nodes=plan.nodes,
        purchase=purchase,
        provider=offer.provider,
        region=offer.region,
        instance_type=offer.instance_type,
    )
    state = State.of(plan.stops.checkpoint_bytes, plan.layout)
    return stops_of(rented, state, start_s=start_up_s())


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
