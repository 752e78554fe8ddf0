"""Machines that a project file names, at the prices of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ...catalog.errors import UsageError, did_you_mean
from ...catalog.names import resolve_provider
from ...planner.budget.fixed_rows import IdlePrice
from ...planner.budget.planned import OWNED, RunCostOf, before_discount, run_cost_of_machine
from ...planner.budget.project.experiment import Experiment
from ...planner.budget.project.lines import Idle

if TYPE_CHECKING:
    from ...catalog.snapshot import Catalogue
    from ...catalog.types import Offer


def machine_cost(spec: Experiment, catalogue: Catalogue) -> RunCostOf:
    """Return what hours of the machine that an experiment names cost, where it is cheapest.

    Raises:
        UsageError: Nobody sells it, or it is to be paid in a way that hours are not priced in.
    """
    assert spec.hours is not None
    if spec.purchase not in (None, "on-demand", "spot"):
        raise UsageError(
            f"its hours are priced on demand or spot, and purchase is {spec.purchase}.",
            fix="give it `purchase: on-demand`, or what you pay as one of your `offers`.",
        )
    spot = spec.purchase == "spot"
    offer = _cheapest_offer(catalogue, spec.provider, spec.instance[0], spec.region, spot=spot)
    return run_cost_of_machine(
        offer,
        nodes=(spec.nodes or (1,))[0],
        hours=spec.hours,
        spot=spot,
        discount_percent=catalogue.pricebook.discount_percent(
            offer, "spot" if spot else "on-demand"
        ),
        tax_percent=catalogue.pricebook.tax_percent,
        is_owned=offer.price_basis == OWNED,
    )


def idle_price(idle: Idle, catalogue: Catalogue) -> IdlePrice:
    """Return what a machine of `idle` costs, at its cheapest region unless one is named."""
    regions = () if idle.region is None else (idle.region,)
    offer = _cheapest_offer(catalogue, (idle.provider,), idle.instance, regions)
    usd = offer.on_demand_usd_per_hour
    percent = catalogue.pricebook.discount_percent(offer, "on-demand")
    return IdlePrice(
        usd_per_hour=usd,
        list_usd_per_hour=None if usd is None else before_discount(Decimal(usd), percent),
        accelerator=offer.accelerator,
        region=offer.region,
        is_owned=offer.price_basis == OWNED,
    )


def _cheapest_offer(
    catalogue: Catalogue,
    providers: Sequence[str],
    instance: str,
    regions: Sequence[str],
    *,
    spot: bool = False,
) -> Offer:
    """Return the offer of a machine with the lowest price; one without a price where none has it.

    Raises:
        UsageError: Nobody sells it.
    """
    sellers = [resolve_provider(one, catalogue=catalogue) for one in providers]
    sold = [one for one in catalogue.offers if not sellers or one.provider in sellers]
    found = [one for one in sold if one.instance_type == instance]
    found = [one for one in found if not regions or one.region in regions]
    if not found:
        kinds = {one.instance_type for one in sold}
        where = f" in {', '.join(regions)}" if regions else ""
        raise UsageError(
            f"Nobody sells {instance}{where}.{did_you_mean(instance, kinds)}",
            fix="see what is sold with `gpuplan offers`.",
        )

    def price(one: Offer) -> tuple[bool, Any]:
        usd = one.market_spot_usd_per_hour if spot else one.on_demand_usd_per_hour
        return usd is None, usd or 0

    return min(found, key=price)
