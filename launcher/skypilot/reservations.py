"""Reservations that the user holds: what SkyPilot must be told, so that machines start in them.

SkyPilot 0.14 takes them from its configuration alone, for AWS (capacity reservations and capacity
blocks) and Google Cloud, never from a task; and none for spot machines (sky/resources.py,
get_reservations_available_resources). Where fewer machines are free in one than are asked for, it
rents the rest on demand (sky/provision/aws/instance.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from ...catalog.errors import UsageError
from ...catalog.files import write_atomically
from ...catalog.snapshot import Catalogue
from ...catalog.terms.pricebook import Reservation
from ...planner.plan.plan import ChosenOffer, Plan
from .placement import Place

CONFIG_FILE = "sky-config.yaml"
"""Beside the task's file."""


def held_reservation(chosen: ChosenOffer, catalogue: Catalogue) -> Reservation | None:
    """Return the reservation with an id that a plan is paid by; None where it is by none.

    Of several for one term, the one whose hour costs what the plan says.
    """
    if chosen.purchase != "reserved" or chosen.usd_per_hour is None:
        return None
    key = chosen.provider, chosen.region, chosen.instance_type
    for one in catalogue.pricebook.reserved:
        same_place = (one.provider, one.region, one.instance) == key
        same_price = float(f"{one.effective_usd_per_hour:.12g}") == float(
            f"{Decimal(str(chosen.usd_per_hour)):.12g}"
        )
        is_same = same_place and same_price and float(one.term_years) == chosen.term_years
        if one.id is not None and one.count is not None and is_same:
            return one
    return None


def refuse_unbought_block(plan: Plan) -> None:
    """Refuse a plan in capacity blocks: one is bought before machines can be started in it.

    Raises:
        UsageError: it is.
    """
    if plan.offer.purchase == "block":
        raise UsageError(
            f"Plan {plan.id} is paid by a capacity block, which {plan.offer.provider} sells and"
            " gpuplan does not buy.",
            fix="buy it, state it under `reserved:` of a --pricebook file with its `count` and `id`"
            " (docs/pricebook.md), and launch a plan of --purchase reserved.",
        )


def refuse_more_than_held(plan: Plan, reservation: Reservation | None) -> None:
    """Refuse a plan of more nodes than its reservation holds: the rest would be paid on demand.

    Raises:
        UsageError: it has more.
    """
    if reservation is None or reservation.count is None or plan.nodes <= reservation.count:
        return
    raise UsageError(
        f"Reservation {reservation.id} holds {reservation.count} of them, and the plan has"
        f" {plan.nodes} × {plan.offer.instance_type}.",  # noqa: RUF001
        fix="take a plan of fewer nodes, or correct `count` in the pricebook.",
    )


def reservation_notes(reservation: Reservation | None) -> tuple[str, ...]:
    """Return what a user should know of a launch into a reservation."""
    if reservation is None:
        return ()
    return (
        f"machines start in your reservation {reservation.id}; where fewer are free in it than are"
        " asked for, SkyPilot rents the rest on demand, which is in none of these sums. The launch"
        " asks AWS or Google Cloud before, unless it is told not to",
    )


def sky_config(
    reservation: Reservation | None, tried: tuple[Place, ...]
) -> dict[str, dict[str, list[str]]] | None:
    """Return the configuration of SkyPilot for a launch; None where it needs none.

    Args:
        reservation: that the plan is paid by.
        tried: the places; where none is at the price of the reservation, none is used.
    """
    if reservation is None or not any(place.is_of_term for place in tried):
        return None
    return {tried[0].cloud: {"specific_reservations": [str(reservation.id)]}}


def write_sky_config(folder: Path, config: Mapping[str, Any] | None) -> None:
    """Write the configuration beside the task's file, if there is one.

    Raises:
        OSError: it cannot be written.
    """
    if config is not None:
        write_atomically(folder / CONFIG_FILE, yaml.safe_dump(dict(config), sort_keys=False))


def read_sky_config(task: Path) -> dict[str, Any] | None:
    """Return the configuration beside a task's file; None where there is none.

    Raises:
        OSError: it cannot be read.
    """
    path = task.parent / CONFIG_FILE
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None
