"""What orphaned machines cost: those without a laptop, SkyPilot or a guard to end them."""

from __future__ import annotations

from collections.abc import Sequence

from ....catalog.units import SECONDS_PER_HOUR
from ...guard.decisions.limits import end_s
from ...guard.orders import Orders, TimerOrders
from ...lifecycle.shutdown_behavior import CLOUD
from ...skypilot.placement import Place
from ...task_file import NO_AUTODOWN
from .power_off import PowerOff, power_off

NOBODY = "if your laptop, SkyPilot and the guard are all gone"
UNATTENDED = "once the job has ended or was stopped, unless a command runs here"


def unowned_notes(
    orders: Orders,
    places: Sequence[Place],
    *,
    image: str | None,
    tpu: bool,
    disk_may_go: bool,
    managed: bool = False,
) -> tuple[str, ...]:
    """Return what the user is told, before renting, about the cost of orphaned machines.

    Args:
        orders: of the launch, with its timer.
        places: where machines are tried.
        image: that the job runs in.
        tpu: whether the machines are those of a TPU slice.
        disk_may_go: whether a machine that powers itself off may be terminated with its disk.
        managed: whether SkyPilot ends the job's machines from its controller.
    """
    timer = orders.timer
    if timer is None or all(place.usd_per_hour == 0 for place in places):
        return ()
    notes = [f"set-up is stopped after {timer.setup_s / SECONDS_PER_HOUR:.1f} h at the latest"]
    for cloud in dict.fromkeys(place.cloud for place in places):
        ended = power_off(cloud, image=image, tpu=tpu)
        if cloud in timer.power_off_on:
            notes.append(
                f"{NOBODY}, machines of {cloud} power themselves off"
                f" {_when(orders, timer)}; {_after(cloud, ended, disk_may_go=disk_may_go)}"
            )
            continue
        nobody = UNATTENDED if cloud in NO_AUTODOWN and not managed else NOBODY
        notes.append(
            f"{nobody}, machines of {cloud} do not end themselves and cost"
            f" ${orders.usd_per_hour:,.2f} an hour without end: look with `gpuplan status` and"
            f" `gpuplan reconcile`, and in the provider's console (still billed after a power-off:"
            f" {ended.still_billed})"
        )
    return tuple(notes)


def _after(cloud: str, ended: PowerOff, *, disk_may_go: bool) -> str:
    """Return what is billed after a machine has powered itself off."""
    if cloud == CLOUD and disk_may_go:
        return (
            "EC2 then terminates them with their disks, which this command sets as soon as they are"
            " up (if it cannot, it says so, and their disks stay billed until `gpuplan reconcile`)"
        )
    return (
        "then billed until `gpuplan reconcile` or the provider's console deletes them:"
        f" {ended.still_billed}"
    )


def _when(orders: Orders, timer: TimerOrders) -> str:
    """Return when a machine ends itself, and what all of them cost until then."""
    idle = (
        f"after {_hours(timer.unowned_s)} ({_usd(orders, timer.unowned_s)}) without set-up or a run"
    )
    last_s = end_s(orders, timer, began_s=orders.requested_at_s)
    if last_s is None:
        return f"{idle}, and at no set time while a guard runs (--max-hours sets one)"
    # The guard is asked to stop then, and has as long as a checkpoint may take.
    last_s += orders.grace_s
    if last_s <= timer.unowned_s:
        return f"after {_hours(last_s)} ({_usd(orders, last_s)}) at the latest"
    return f"{idle}, and at the latest after {_hours(last_s)} ({_usd(orders, last_s)})"


def _hours(seconds: float) -> str:
    return f"{seconds / SECONDS_PER_HOUR:,.1f} h"


def _usd(orders: Orders, seconds: float) -> str:
    return f"${seconds * orders.usd_per_s:,.2f}"
