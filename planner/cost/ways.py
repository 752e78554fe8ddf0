"""Rent, commit or buy: the ways of paying for the machines of a plan, side by side. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, Decimal

from ...catalog.embedded import Catalogue
from ...catalog.listing.ownership import (
    Ownership,
    break_even_month,
    capital_usd_per_month,
    running_usd_per_month,
    usd_per_used_hour,
)
from ...catalog.terms.terms_of_offer import Term, blocks_of, terms_of
from ...catalog.types import Offer
from ...catalog.units import HOURS_PER_MONTH, MONTHS_PER_YEAR, SECONDS_PER_HOUR
from ..plan.payment import BuyingWay, UseCost, WaysToPay
from ..plan.plan import Estimated, Plan
from .launch_cost import launch_cost
from .paid_whole import PaidWhole
from .run_cost import CENT
from .tax import tax_rate

USES = tuple(Decimal(percent) / 100 for percent in (10, 25, 50, 75, 100))
"""Shares of all hours in use at which the ways are compared."""
BLOCK_CLASS = "capacity-block"
"""Class of use of a type that is sold in capacity blocks."""
USUAL_TERMS = (Decimal(1), Decimal(3))
"""Years that are listed also where nobody states a price."""


def ways_to_pay(plan: Plan, catalogue: Catalogue) -> WaysToPay | None:
    """Return what a plan on demand would cost if its machines were paid for in other ways.

    None for a plan that is not on demand, or whose offer or price is not known.
    """
    chosen = plan.offer
    key = chosen.provider, chosen.region, chosen.instance_type
    offers = [o for o in catalogue.offers if (o.provider, o.region, o.instance_type) == key]
    if chosen.purchase != "on-demand" or chosen.usd_per_hour is None or not offers:
        return None
    hourly = Decimal(str(chosen.usd_per_hour))
    job = plan.whole_job
    ways = [
        BuyingWay(
            way="on-demand",
            usd_per_hour=chosen.usd_per_hour,
            by_use=_by_use(chosen.usd_per_hour),
            job_usd=None if job is None else job.usd,
        ),
        BuyingWay(
            way="spot",
            usd_per_hour=chosen.spot_usd_per_hour,
            by_use=_by_use(chosen.spot_usd_per_hour),
            job_usd=None if job is None else job.spot_usd,
        ),
        *_terms(plan, offers[0], catalogue, hourly),
        *_blocks(plan, offers[0], catalogue, hourly),
        # Hardware of one's own is bought once, without the tax that every rented hour has.
        *_owned(plan, catalogue, hourly * (1 + tax_rate(_tax_percent(plan)))),
    ]
    return WaysToPay(plan_id=plan.id, ways=tuple(ways))


def _terms(plan: Plan, offer: Offer, catalogue: Catalogue, hourly: Decimal) -> Iterator[BuyingWay]:
    known = terms_of(offer, catalogue)
    unknown = [years for years in USUAL_TERMS if years not in [one.years for one in known]]
    listed: Sequence[Term | Decimal] = sorted(
        [*known, *unknown], key=lambda one: one.years if isinstance(one, Term) else one
    )
    for term in listed:
        if not isinstance(term, Term):
            yield BuyingWay(way="committed", term_years=float(term), usd_per_hour=None)
            continue
        share = term.usd_per_hour / hourly
        month = (term.years * MONTHS_PER_YEAR * share).to_integral_value(ROUND_CEILING)
        yield BuyingWay(
            way="reserved" if term.is_held else "committed",
            term_years=float(term.years),
            usd_per_hour=float(term.usd_per_hour),
            by_use=tuple(_used(share, term.usd_per_hour / share) for share in USES),
            job_usd=_share_of_job(plan, share),
            whole_usd=(term.hours * term.usd_per_hour * plan.nodes).quantize(CENT),
            break_even_share=float(share),
            break_even_month=int(month) if share <= 1 else None,
        )


def _blocks(plan: Plan, offer: Offer, catalogue: Catalogue, hourly: Decimal) -> Iterator[BuyingWay]:
    """Yield the capacity blocks that a price is known of; where it is sold so, without one too."""
    job, instance = plan.whole_job, catalogue.instance_of(offer)
    terms = blocks_of(offer, catalogue)
    if not terms and instance is not None and BLOCK_CLASS in instance.usage_classes:
        yield BuyingWay(way="block", usd_per_hour=None)
    for term in terms:
        whole_usd = None
        if job is not None:
            hours = Decimal(PaidWhole.of(term).paid_s(job.hours * SECONDS_PER_HOUR))
            net = hours / SECONDS_PER_HOUR * term.usd_per_hour * plan.nodes
            whole_usd = net.quantize(CENT)
        yield BuyingWay(
            way="block",
            usd_per_hour=float(term.usd_per_hour),
            by_use=_by_use(float(term.usd_per_hour)),
            job_usd=_job_in_blocks_usd(plan, term, catalogue),
            whole_usd=whole_usd,
            break_even_share=float(term.usd_per_hour / hourly),
        )


def _job_in_blocks_usd(plan: Plan, term: Term, catalogue: Catalogue) -> Decimal | None:
    """Return what the job costs in capacity blocks, with tax; None without an amount of work."""
    run, step = plan.run, plan.step_time_s
    if run is None:
        return None
    times = {name: run.steps * getattr(step, name) for name in ("value", "low", "high")}
    return launch_cost(
        Estimated(**times, basis=step.basis),
        nodes=plan.nodes,
        usd_per_hour=term.usd_per_hour,
        dearest_usd_per_hour=term.usd_per_hour,
        billing=catalogue.billing_of(plan.offer.provider, plan.offer.instance_type),
        stops=plan.stops,
        paid_whole=PaidWhole.of(term),
        tax_percent=_tax_percent(plan),
    ).usd_expected


def _tax_percent(plan: Plan) -> Decimal:
    return Decimal(str(plan.offer.tax_percent or 0))


def _owned(plan: Plan, catalogue: Catalogue, hourly: Decimal) -> Iterator[BuyingWay]:
    """Yield the user's bought machines with the plan's accelerator, as many of them as it has.

    Args:
        plan: on demand.
        catalogue: with the user's machines.
        hourly: what an hour of a rented node costs, US dollars with tax.
    """
    for (provider, kind), owned in catalogue.ownership.items():
        instance = catalogue.instances.get((provider, kind))
        if instance is None or instance.accelerator != plan.offer.accelerator:
            continue
        # One node of the plan in nodes of this kind, by its accelerators.
        scale = Decimal(plan.offer.accelerators_per_node) / Decimal(str(instance.accelerators))
        rental = hourly / scale
        in_full_use = owned.model_copy(update={"utilisation": Decimal(1)})
        usd = usd_per_used_hour(in_full_use) * scale
        job = plan.whole_job
        yield BuyingWay(
            way="owned",
            term_years=float(owned.lifetime_years),
            name=f"{provider} {kind}",
            usd_per_hour=float(usd),
            by_use=tuple(
                _used(one, scale * usd_per_used_hour(owned.model_copy(update={"utilisation": one})))
                for one in USES
            ),
            job_usd=None if job is None else (usd * plan.nodes * Decimal(job.hours)).quantize(CENT),
            whole_usd=(owned.capex_usd * scale * plan.nodes).quantize(CENT),
            break_even_share=_share_that_pays(owned, rental),
            break_even_month=break_even_month(in_full_use, rental_usd_per_hour=rental),
        )


def _by_use(usd_per_hour: float | None) -> tuple[UseCost, ...]:
    """Return what is paid by the hour: the same at every use."""
    if usd_per_hour is None:
        return ()
    return tuple(_used(share, Decimal(str(usd_per_hour))) for share in USES)


def _used(share: Decimal, usd_per_hour: Decimal) -> UseCost:
    return UseCost(share=float(share), usd_per_hour=float(usd_per_hour))


def _share_that_pays(owned: Ownership, rental_usd_per_hour: Decimal) -> float | None:
    """Return the utilisation at which owning costs what renting the same hours does.

    Cost a month is a + b u at utilisation u, for electricity alone grows with it.
    """

    def monthly_usd(utilisation: Decimal) -> Decimal:
        used = owned.model_copy(update={"utilisation": utilisation})
        return capital_usd_per_month(used) + running_usd_per_month(used)

    per_share = 2 * (monthly_usd(Decimal(1)) - monthly_usd(Decimal("0.5")))
    fixed = monthly_usd(Decimal(1)) - per_share
    saved = HOURS_PER_MONTH * rental_usd_per_hour - per_share
    return float(fixed / saved) if saved > 0 else None


def _share_of_job(plan: Plan, share: Decimal) -> Decimal | None:
    """Return what the job costs at so much of the price on demand."""
    job = plan.whole_job
    return None if job is None or job.usd is None else (job.usd * share).quantize(CENT)
