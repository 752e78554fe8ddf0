"""What SkyPilot's controller costs a launch: the machine that it runs managed jobs from."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from ....catalog.terms.controllers import controller_machine, dearest_controller_usd_per_hour
from ....planner.plan.plan import Plan
from ...skypilot.placement import Place
from ..request import LaunchRequest

NONE_PAID = Decimal(0)


def controller_usd_per_hour(plan: Plan, request: LaunchRequest, places: Sequence[Place]) -> Decimal:
    """Return the most that a controller costs a launch in these places, $/h before tax.

    SkyPilot takes it in the cloud and region of the job; where its price there is not known, the
    highest that is known anywhere stands for it. 0 where machines are bought on demand or are the
    user's own, and where SkyPilot's server is its own controller.
    """
    if not request.buys_spot(plan) or request.infra is not None or not request.has_controller:
        return NONE_PAID
    return max(_usd_per_hour(place) for place in places)


def _usd_per_hour(place: Place) -> Decimal:
    machine = None if place.region is None else controller_machine(place.cloud, place.region)
    return dearest_controller_usd_per_hour() if machine is None else machine.usd_per_hour
