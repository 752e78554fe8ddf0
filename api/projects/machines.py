"""Machines that a project file names, at the prices of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ...catalog.errors import UsageError, did_you_mean
from ...catalog.listing.query import parse_accelerator_request, resolve_jurisdiction
from ...catalog.names import resolve_provider
from ...planner.budget.fixed_rows import IdlePrice
from ...planner.budget.money import dollars
from ...planner.budget.planned import OWNED, RunCostOf, before_discount, run_cost_of_machine
from ...planner.budget.project.experiment import Experiment
from ...planner.budget.project.lines import Idle

if TYPE_CHECKING:
    from ...catalog.snapshot import Catalogue
    from ...catalog.types import Offer


def machine_cost(spec: Experiment, catalogue: Catalogue) -> RunCostOf:
    """Return what hours of the machine that an experiment names cost, where it is cheapest.

    Raises:
        UsageError: Nobody sells it there, it has other accelerators than are asked for, it costs
            more than the budget of a run, or hours are not priced in the way it is to be paid.
    """
    assert spec.hours is not None
    if spec.purchase not in (None, "on-demand", "spot"):
        raise UsageError(
            f"its hours are priced on demand or spot, and purchase is {spec.purchase}.",
            fix="give it `purchase: on-demand`, or what you pay as one of your `offers`.",
        )
    spot = spec.purchase == "spot"
    place = _Place(providers=spec.provider, regions=spec.region, jurisdictions=spec.jurisdiction)
    offer = _cheapest_offer(catalogue, spec.instance[0], place, spot=spot)
    _refuse_other_accelerator(spec, offer, catalogue)
    cost = run_cost_of_machine(
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
    if spec.budget is not None and cost.usd is not None and cost.usd > spec.budget:
        raise UsageError(
            f"{spec.hours:g} h of {cost.rent} cost {dollars(cost.usd)}, and budget, the most that"
            f" one run may cost, is {dollars(spec.budget)}.",
            fix="give fewer hours or a larger budget, or leave the budget out.",
        )
    return cost


def _refuse_other_accelerator(spec: Experiment, offer: Offer, catalogue: Catalogue) -> None:
    wanted = [parse_accelerator_request(one, catalogue=catalogue) for one in spec.accelerator]
    if wanted and not any(one.accepts(offer) for one in wanted):
        raise UsageError(
            f"{offer.instance_type} has {offer.accelerators:g} × {offer.accelerator}, and"  # noqa: RUF001
            f" accelerator is {', '.join(spec.accelerator)}.",
            fix="name an instance that has it (`gpuplan offers --accelerator"
            f" {spec.accelerator[0]}`), or leave the accelerator out.",
        )


def idle_price(idle: Idle, catalogue: Catalogue) -> IdlePrice:
    """Return what a machine of `idle` costs, at its cheapest region unless one is named."""
    regions = () if idle.region is None else (idle.region,)
    offer = _cheapest_offer(
        catalogue, idle.instance, _Place(providers=(idle.provider,), regions=regions)
    )
    usd = offer.on_demand_usd_per_hour
    percent = catalogue.pricebook.discount_percent(offer, "on-demand")
    return IdlePrice(
        usd_per_hour=usd,
        list_usd_per_hour=None if usd is None else before_discount(Decimal(usd), percent),
        accelerator=offer.accelerator,
        region=offer.region,
        is_owned=offer.price_basis == OWNED,
    )


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Who may sell a machine, and where; what is empty asks for nothing."""

    providers: Sequence[str]
    regions: Sequence[str] = ()
    jurisdictions: Sequence[str] = ()

    @property
    def text(self) -> str:
        """In words: " in us-east-1, in jurisdiction eu"."""
        regions = (f" in {', '.join(self.regions)}",) if self.regions else ()
        countries = (f" in jurisdiction {', '.join(self.jurisdictions)}",)
        return ",".join(regions + (countries if self.jurisdictions else ()))


def _cheapest_offer(
    catalogue: Catalogue, instance: str, place: _Place, *, spot: bool = False
) -> Offer:
    """Return the offer of a machine with the lowest price; one without a price where none has it.

    Raises:
        UsageError: Nobody sells it there.
    """
    sellers = [resolve_provider(one, catalogue=catalogue) for one in place.providers]
    countries = {
        country for one in place.jurisdictions for country in resolve_jurisdiction(one, catalogue)
    }
    sold = [one for one in catalogue.offers if not sellers or one.provider in sellers]
    named = [one for one in sold if one.instance_type == instance]
    found = [one for one in named if not place.regions or one.region in place.regions]
    # Where a region's country is not known, it may be another one.
    found = [one for one in found if not countries or catalogue.jurisdiction_of(one) in countries]
    if not found:
        kinds = {one.instance_type for one in sold}
        elsewhere = sorted({one.region for one in named})
        raise UsageError(
            f"Nobody sells {instance}{place.text}."
            + (
                f" It is sold in {', '.join(elsewhere)}."
                if named
                else did_you_mean(instance, kinds)
            ),
            fix="see what is sold with `gpuplan offers`.",
        )

    def price(one: Offer) -> tuple[bool, Any]:
        usd = one.market_spot_usd_per_hour if spot else one.on_demand_usd_per_hour
        return usd is None, usd or 0

    return min(found, key=price)
