"""Shorter forms of what a row of the table of plans says, for narrow terminals."""

from __future__ import annotations

from collections.abc import Iterable

from ....catalog.names import short_accelerator, short_instance, shown_instance
from ....planner.plan.plan import AT_LEAST, Plan
from ..text.wording import describe_on_demand, describe_spot, likely_on_demand_usd, likely_spot_usd

TIMES = "×"  # noqa: RUF001


def short_place(plan: Plan) -> str:
    """Return what is rented: "azure 2×NC24ads_A100_v4 eastus" (Standard_ left out)."""
    return _place(plan, plan.place)


def short_place_anywhere(plan: Plan) -> str:
    """Return the same without its region: "azure 2×NC24ads_A100_v4"."""
    offer = plan.offer
    return _place(plan, plan.place.replace(f" {offer.zone or offer.region}", ""))


def short_place_region_first(plan: Plan) -> str:
    """Return the same with the region before the type, of which the end may then be cut."""
    offer = plan.offer
    region = f" {offer.zone or offer.region}"
    where = region if region in plan.place else ""
    return short_place_anywhere(plan).replace(offer.provider, f"{offer.provider}{where}", 1)


def need_regions(plans: Iterable[Plan]) -> bool:
    """Return whether plans rent the same in several regions, so that rows are told by these."""
    regions: dict[tuple[str, str, int], set[str]] = {}
    for plan in plans:
        offer = plan.offer
        key = (offer.provider, offer.instance_type, plan.nodes)
        regions.setdefault(key, set()).add(offer.zone or offer.region)
    return any(len(found) > 1 for found in regions.values())


def short_devices(plan: Plan) -> str:
    """Return what it computes on, as short as `--accelerator` takes it: "8×A100-40GB"."""
    return f"{plan.accelerators}{TIMES}{short_accelerator(plan.offer.accelerator)}"


def short_time(plan: Plan) -> str:
    """Return the length of the whole job: "26–33 h", "3.6–5.2 d"."""
    return plan.hours_text.replace(" days", " d")


def short_cost(plan: Plan) -> str:
    """Return the cost of the whole job: "≥$4.10–5.60"."""
    return plan.cost_text.replace(AT_LEAST, AT_LEAST.strip())


def short_spot(plan: Plan) -> str:
    """Return what the run costs on the spot market: "$420k", "$1.3M"."""
    return _short_usd(likely_spot_usd(plan), describe_spot(plan))


def short_on_demand(plan: Plan) -> str:
    """Return what the run of a spot plan costs on demand: "$420k", "$1.3M"."""
    return _short_usd(likely_on_demand_usd(plan), describe_on_demand(plan))


def _short_usd(usd: float | None, text: str) -> str:
    if usd is None or usd < 1e5:
        return text
    return f"${usd / 1e6:.3g}M" if usd >= 1e6 else f"${usd / 1e3:.3g}k"


def _place(plan: Plan, place: str) -> str:
    provider, name = plan.offer.provider, plan.offer.instance_type
    long = shown_instance(provider, name)
    return place.replace(f" {TIMES} {long}", f"{TIMES}{short_instance(provider, name)}")
