"""What a user should know of a launch before it costs: never tried, not in the sums, left behind.

Pure: nothing is read, written or asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from ...catalog.terms.addresses import PUBLIC_IPV4_USD_PER_HOUR
from ...catalog.text.money import format_money
from ...catalog.text.quantity import format_duration
from ...catalog.types import Provider
from ...catalog.units import SECONDS_PER_HOUR
from ...planner.cost.beside_machines.beside import (
    AROUND_LINES,
    at_price,
    beside_tax_line,
    total_usd,
)
from ...planner.cost.beside_machines.data_cost import data_lines
from ...planner.cost.run_cost import CENT
from ...planner.goodput.expected_run import ExpectedRun
from ...planner.plan.parts import Evaluation, SpotPriceRange
from ...planner.plan.plan import DataLine, Plan
from ..guard.orders import Orders
from ..lifecycle.shutdown_behavior import loses_nothing
from ..skypilot.placement import TPU_SLICES
from .money.controller import waiting_note
from .money.purchase import Bought
from .money.unowned_cost import unowned_notes
from .request import LaunchRequest
from .task.guard_config import taxed_rate

_CONTROLLER = (
    "SkyPilot runs spot launches from a controller, a machine of 4 vCPUs or more: it is counted as"
    " if it ran this launch alone. It is stopped after 10 idle minutes, and its disk of 50 GB is"
    " billed until it is ended, which is not counted: `gpuplan reconcile` names it"
)
_NO_CONTROLLER = "SkyPilot's server runs spot launches itself (jobs.controller.consolidation_mode)"


def launch_notes(
    plan: Plan,
    bought: Bought,
    held: Orders,
    *,
    billing: Provider | None,
    in_reservation: bool = False,
    has_addresses: bool = True,
) -> tuple[str, ...]:
    """Return the notes on a launch.

    Args:
        plan: what is launched.
        bought: its machines and its costs.
        held: what the guard on the nodes holds it to.
        billing: the plan's provider; None where the catalogue does not know it.
        in_reservation: whether it goes into machines that are held, by their id.
        has_addresses: whether its machines get public addresses.
    """
    return (
        *_of_term(plan, bought, in_reservation=in_reservation),
        *_never_tried(plan, bought.request),
        *_not_counted(plan, bought, billing, has_addresses=has_addresses),
        *_of_evaluation(plan, bought),
        *_of_spot(plan, bought, held),
        *unowned_notes(
            held,
            (*bought.places, *bought.fallback),
            image=bought.request.image,
            tpu=plan.offer.accelerator in TPU_SLICES,
            managed=bought.request.buys_spot(plan),
            disk_may_go=loses_nothing(
                managed=bought.request.buys_spot(plan), fetch=bought.request.fetch
            ),
        ),
    )


def _of_term(plan: Plan, bought: Bought, *, in_reservation: bool) -> tuple[str, ...]:
    """Say what makes the price of an hour true, where it is that of a term of years."""
    if in_reservation or not any(place.is_of_term for place in bought.places):
        return ()
    term = _term_of(plan)
    if bought.is_term_held:
        return (
            f"the price of an hour is that of {term} that your pricebook says you hold: what no job"
            " uses of it is paid already, and not in these sums",
        )
    counted = (
        "Hours of it that no job uses are paid as well, and are not in these sums"
        if bought.signed is None
        else "All of it is counted: it is bought for this job"
        if bought.signed.is_for_this_alone
        else "Of it this job's share is expected, as its estimate says, and all of it is paid at"
        " worst"
    )
    return (
        f"the price of an hour is that of {term}, which has to be signed before this starts:"
        f" without it {plan.offer.provider} bills every hour on demand, and no limit here sees it."
        f" {counted}",
    )


def _term_of(plan: Plan) -> str:
    years = plan.offer.term_years
    return "a term" if years is None else f"a term of {years:g} year{'s' if years > 1 else ''}"


def term_text(bought: Bought) -> str | None:
    """Return what a term costs that is to be signed for a launch; None where none is."""
    signed, usd = bought.signed, bought.cost.usd_of_terms
    if signed is None or usd is None:
        return None
    years = f"{signed.term.years:g} year{'s' if signed.term.years > 1 else ''}"
    counted = "all of it is counted" if signed.is_for_this_alone else "this job's share is expected"
    return (
        f"{years} for ${usd:,.2f}, paid used or not; {counted}"
        " (a `count` in your pricebook says that you hold it)"
    )


def _never_tried(plan: Plan, request: LaunchRequest) -> tuple[str, ...]:
    if plan.nodes == 1 or request.command is not None or request.outputs is None:
        return ()
    return (
        "checkpoints that several nodes write through a mounted bucket were tried on a"
        " simulated cloud only: check the first one before you rely on them",
    )


def _not_counted(
    plan: Plan, bought: Bought, billing: Provider | None, *, has_addresses: bool
) -> tuple[str, ...]:
    lines = _beside(
        plan,
        bought.cost.hours_expected,
        usd_per_hour=bought.places[0].usd_per_hour,
        managed=bought.request.buys_spot(plan),
    )
    items = [line.text for line in lines]
    if has_addresses:
        items += _addresses(plan, bought)
    notes = (
        "disks, buckets and traffic between regions are not in these sums"
        + (f": {', '.join(items)}" if items else "")
        + _in_all(plan, bought, lines),
    )
    if billing is None or billing.billing_increment_s is None:
        notes += (f"what {plan.offer.provider} rounds its bills to is not known",)
    return notes


def _in_all(plan: Plan, bought: Bought, lines: Sequence[DataLine]) -> str:
    """Return what a launch is expected to cost with what is surely paid beside it, as estimated."""
    sure = [one for one in lines if one.is_certain and one.usd]
    if bought.cost.usd_expected is None or not sure:
        return ""
    tax = None if plan.offer.tax_percent is None else Decimal(str(plan.offer.tax_percent))
    of_tax = beside_tax_line(sure, tax)
    usd = total_usd(bought.cost.lines, sure if of_tax is None else [*sure, of_tax])
    return f"; with {', '.join(one.name for one in sure)} ${usd:,.2f} are expected"


def _addresses(plan: Plan, bought: Bought) -> list[str]:
    """Return what the public addresses of the machines cost, where that is known."""
    rate, hours = PUBLIC_IPV4_USD_PER_HOUR.get(plan.offer.provider), bought.cost.hours_expected
    if rate is None or hours is None:
        return []
    machines = plan.nodes + bool(bought.cost.controller_usd_per_hour)
    usd = (machines * rate * Decimal(str(hours))).quantize(CENT)
    return [f"public addresses {format_money(usd)}"]


def _of_evaluation(plan: Plan, bought: Bought) -> tuple[str, ...]:
    """Say how long evaluations may take, and where they are counted and none is asked for."""
    every, run = bought.request.training.eval_every_steps, bought.cost.run
    if run is None or plan.run is None:
        return ()
    known = None if plan.stops is None else plan.stops.evaluation
    if known is not None:
        return _of_counted_evaluation(known, every, run)
    if every is None:
        return ()
    count = -(-plan.run.steps // every)
    each = "one evaluation" if count == 1 else f"each of {count:,} evaluations"
    percent = f"{100 * run.beside_s / run.training_s:.2g} %"
    each_hours = run.beside_s / count / SECONDS_PER_HOUR
    return (
        f"evaluation and slow steps are counted as {percent} of the training, which is assumed:"
        f" {format_duration(each_hours)} for {each}. What an evaluation takes beyond that is not in"
        " these sums; an estimate with --eval-every counts it",
    )


def _of_counted_evaluation(
    known: Evaluation, every: int | None, run: ExpectedRun
) -> tuple[str, ...]:
    """Say what is counted for evaluations whose samples the plan knows."""
    if every is None:
        return (
            f"the plan counts evaluations every {known.every_steps:,} steps, and none is made"
            " without --eval-every",
        )
    percent = f"{100 * (run.evaluation_s or 0.0) / run.training_s:.2g} %"
    return (f"evaluations on {known.samples:,} samples are counted as {percent} of the training",)


def _beside(
    plan: Plan, hours: float | None, *, usd_per_hour: Decimal, managed: bool
) -> tuple[DataLine, ...]:
    """Return what a launch pays beside its machines; nothing where its length is not known."""
    if hours is None or plan.stops is None:
        return ()
    provider, region = plan.offer.provider, plan.offer.region
    lines = data_lines(
        provider=provider,
        region=region,
        nodes=plan.nodes,
        checkpoint_bytes=plan.stops.checkpoint_bytes,
        hours=hours,
        in_bucket=managed,
    )
    if plan.whole_job is not None:
        planned = plan.whole_job.data_lines
        lines += tuple(line for line in planned if line.is_of_dataset)
        lines += tuple(at_price(one, usd_per_hour) for one in planned if one.name in AROUND_LINES)
    return lines


def _of_moves(moves: SpotPriceRange | None) -> tuple[str, ...]:
    if moves is None or moves.high == 1:
        return ()
    return (
        f"of {moves.prices} days with a spot price one in ten was followed, while such a job takes,"
        f" by one {moves.high:.3g} times as high or more: its guard holds --max-cost and the limits"
        " as if machines cost that all the time",
    )


def _of_spot(plan: Plan, bought: Bought, held: Orders) -> tuple[str, ...]:
    request = bought.request
    if not request.buys_spot(plan):
        return ()
    return (
        *_of_moves(bought.moves),
        "after an interruption of spot machines SkyPilot starts the job again, and it continues"
        " from its newest checkpoint",
        waiting_note(held, taxed_rate(bought.cost.controller_usd_per_hour, plan)),
        _CONTROLLER if request.has_controller else _NO_CONTROLLER,
    )
