"""What SkyPilot's controller costs a launch: the machine that it runs managed jobs from.

It costs while a job waits for machines too, and SkyPilot 0.14 waits without end: a controller is
idle, and stops itself, only once no job is left to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from ....catalog.terms.controllers import controller_machine, dearest_controller_usd_per_hour
from ....catalog.units import HOURS_PER_DAY
from ....planner.plan.plan import Plan
from ...guard.orders import Orders
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


def waiting_note(held: Orders, usd_per_hour: Decimal) -> str:
    """Return what is billed while a managed job waits for machines, and what ends the wait.

    Args:
        held: what the launch is held to.
        usd_per_hour: of the controller, tax included; 0 where SkyPilot's server is its own.
    """
    waits = "where no place has machines, at the start or after an interruption, SkyPilot waits"
    if not usd_per_hour:
        return f"{waits} without end, and nothing is billed for it"
    billed = (
        f"{waits} without end, and its controller alone is billed: ${usd_per_hour:,.2f} an hour,"
        f" ${usd_per_hour * HOURS_PER_DAY:,.2f} a day"
    )
    ends = []
    if held.deadline_s is not None:
        ends.append("the deadline")
    if held.max_cost_usd is not None:
        days = Decimal(str(held.max_cost_usd)) / usd_per_hour / HOURS_PER_DAY
        ends.append(f"--max-cost (after {days:,.1f} days of the controller alone)")
    if not ends:
        return (
            f"{billed}. Nothing ends that but `gpuplan down`: --deadline or --max-cost would, as"
            " soon as a command looks"
        )
    return (
        f"{billed}. Past {' or '.join(ends)} the next command that looks ends it (`gpuplan status`,"
        " `reconcile`, a followed log): with your laptop closed nobody looks"
    )
