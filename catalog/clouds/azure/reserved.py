"""Capacity that an Azure subscription has reserved: groups of capacity reservations. Read-only.

The shapes:
https://learn.microsoft.com/rest/api/compute/capacity-reservation-groups/list-by-subscription
https://learn.microsoft.com/rest/api/compute/capacity-reservations/get (2026-11-25).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..asking import Patience, ask_everywhere
from ..interface import Asked, Reservation, Reservations, Tell
from .client import limits

GROUPS_PERMISSION = "Microsoft.Compute/capacityReservationGroups/read"
MEMBERS_PERMISSION = "Microsoft.Compute/capacityReservationGroups/capacityReservations/read"
READY = "Succeeded"
"""What a reservation is as soon as it holds machines."""

AllOf = Callable[[Callable[[], Any], str], list[Any]]
"""Takes a request and what it needs; returns every item of every page."""


def held_by_subscription(
    client: Any, all_of: AllOf, asked: Asked, patience: Patience, tell: Tell
) -> Reservations:
    """Return the reservations of the asked sizes and regions, with what of them is free.

    Args:
        client: A `ComputeManagementClient`.
        all_of: Makes its requests.
        asked: Sizes and regions.
        patience: Time-outs.
        tell: Called as groups answer.

    Raises:
        CloudError: The groups cannot be listed.
    """
    options = limits(patience)
    groups = all_of(
        lambda: client.capacity_reservation_groups.list_by_subscription(**options),
        GROUPS_PERMISSION,
    )
    # A group is in one region; what is elsewhere was not asked for.
    near = {one.id: one for one in groups if _region(one) in asked.regions}

    def of_group(group_id: str) -> list[Reservation]:
        place = (_part(group_id, "resourceGroups"), _part(group_id, "capacityReservationGroups"))
        listed = all_of(
            lambda: client.capacity_reservations.list_by_capacity_reservation_group(
                *place, **options
            ),
            MEMBERS_PERMISSION,
        )
        wanted = [one for one in listed if one.sku is not None and one.sku.name in asked.instances]
        return [
            found
            for one in wanted
            for whole in all_of(
                lambda name=one.name: [
                    client.capacity_reservations.get(*place, name, expand="instanceView", **options)
                ],
                MEMBERS_PERMISSION,
            )
            if (found := _reservation(whole)) is not None
        ]

    answers, silent = ask_everywhere(
        near,
        of_group,
        question="held",
        what="reserved capacity of Azure",
        patience=patience,
        tell=tell,
    )
    return Reservations(
        held=tuple(one for found in answers.values() for one in found),
        unanswered=tuple(
            one.model_copy(update={"region": _region(near[one.region or ""])}) for one in silent
        ),
    )


def _reservation(one: Any) -> Reservation | None:
    """Return what a reservation holds; None while it holds nothing yet."""
    if one.provisioning_state != READY or not one.sku.capacity:
        return None
    use = None if one.instance_view is None else one.instance_view.utilization_info
    # Azure leaves the list out where no machine runs in it; without a view, nothing is known.
    taken = None if use is None else len(use.virtual_machines_allocated or ())
    return Reservation(
        region=_region(one),
        zone=next(iter(one.zones or ()), None),
        id=one.name,
        instance_type=one.sku.name,
        kind="reservation",
        instances=int(one.sku.capacity),
        free=None if taken is None else max(0, int(one.sku.capacity) - taken),
        starts=None,
        ends=None,
    )


def _region(one: Any) -> str:
    """Return the region as this catalogue writes it: Azure says "East US", too."""
    return str(one.location or "").replace(" ", "").lower()


def _part(resource_id: str, name: str) -> str:
    """Return what follows a word in an id.

    >>> _part("/subscriptions/s/resourceGroups/mine/providers/x", "resourceGroups")
    'mine'
    """
    parts = resource_id.strip("/").split("/")
    lowered = [one.lower() for one in parts]
    return parts[lowered.index(name.lower()) + 1]
