"""What SkyPilot says that a task costs, beside what the plan says.

The prices that gpuplan plans with and those that SkyPilot downloads are of different days. Neither
is the bill. More than one percent apart is said before anything is rented, and the launch then
counts the higher one. In a SkyPilot home of gpuplan's own (`sky_home`) they are the same prices.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from typing import Any

from ...catalog.errors import GpuplanError
from ...planner.plan.plan import Plan
from .home import enter
from .placement import Place

SAME_WITHIN = Decimal("0.01")
"""A fraction: prices closer than this are not worth a word."""
SECONDS = 3600

AskPrices = Callable[[Mapping[str, Any]], Sequence[Decimal | None]]
"""A task as SkyPilot reads it → the price of all its nodes, $/h, in each of its places in their
order; None where SkyPilot knows none."""


@dataclass(frozen=True, kw_only=True)
class PriceDifference:
    """One place where the plan and SkyPilot speak of different dollars; all nodes, $/h."""

    infra: str
    ours_usd_per_hour: Decimal
    skypilot_usd_per_hour: Decimal
    """Less what the user's pricebook takes off such a price."""
    discount_percent: Decimal | None = None

    @property
    def dearer_usd_per_hour(self) -> Decimal:
        """Return the higher one, which the launch is counted at."""
        return max(self.ours_usd_per_hour, self.skypilot_usd_per_hour)

    def __str__(self) -> str:
        change = self.skypilot_usd_per_hour / self.ours_usd_per_hour - 1
        off = (
            ""
            if self.discount_percent is None
            else f" less your {float(self.discount_percent):g} %"
        )
        return (
            f"{self.infra}: the plan says ${self.ours_usd_per_hour:.2f}/h,"
            f" SkyPilot's own table{off} ${self.skypilot_usd_per_hour:.2f}/h ({change:+.0%})"
        )


def price_differences(
    task: Mapping[str, Any],
    plan: Plan,
    places: Sequence[Place],
    ask: AskPrices | None = None,
) -> tuple[PriceDifference, ...]:
    """Return where SkyPilot's price is more than one percent off the plan's.

    A place of which SkyPilot knows no price is left out, and one whose price is that of a term:
    there is nothing to compare. Where the user's pricebook has a discount, SkyPilot's list price is
    taken less the same.

    Args:
        task: as it is launched (`Task.config`).
        plan: whose nodes are priced.
        places: of the task, in its order.
        ask: SkyPilot; tests bring another.

    Raises:
        GpuplanError: SkyPilot cannot be asked.
    """
    theirs = (ask or skypilot_prices)(task)
    found = []
    for place, usd in zip(places, theirs, strict=True):
        ours = place.usd_per_hour * plan.nodes
        if usd is None or place.is_of_term:
            continue
        usd = usd * (100 - (place.discount_percent or Decimal(0))) / 100
        if ours > 0 and abs(usd - ours) > ours * SAME_WITHIN:
            found.append(
                PriceDifference(
                    infra=place.infra,
                    ours_usd_per_hour=ours,
                    skypilot_usd_per_hour=usd,
                    discount_percent=place.discount_percent,
                )
            )
    return tuple(found)


def skypilot_prices(task: Mapping[str, Any]) -> list[Decimal | None]:
    """Return what SkyPilot's tables on this machine say; it downloads those that are not here.

    No server and no account are asked; on AWS SkyPilot asks which zones the account has.

    Raises:
        GpuplanError: SkyPilot is not installed, or does not read the task.
    """
    enter()
    try:
        sky: Any = import_module("sky")
    except ImportError as error:
        raise GpuplanError(
            f"SkyPilot is not installed here ({error}).", fix='pip install "gpuplan[sky]".'
        ) from None
    wanted = {"num_nodes": task["num_nodes"], "resources": task["resources"]}
    # It shows what it looks up on standard output, which is ours for data.
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            read = sky.Task.from_yaml_config(wanted)
        except ValueError as error:
            raise GpuplanError(
                f"SkyPilot does not take the task: {' '.join(str(error).split())[:300]}",
                fix="see `gpuplan check`; a region may not be enabled for your account.",
            ) from None
        return [_usd_per_hour(sky, resources, read.num_nodes) for resources in read.resources]


def _usd_per_hour(sky: Any, resources: Any, nodes: int) -> Decimal | None:
    """Return the price of what SkyPilot would take, which is the cheapest that fits."""
    try:
        found = resources.cloud.get_feasible_launchable_resources(resources, nodes)
        costs = [launchable.get_cost(SECONDS) for launchable in found.resources_list]
    except (ValueError, AssertionError, sky.exceptions.NotSupportedError):
        # So says SkyPilot that it has no price, no such machine, or no way to sell it so.
        return None
    known = [Decimal(str(cost)) for cost in costs if cost == cost]
    return min(known) * nodes if known else None
