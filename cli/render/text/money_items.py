"""The money of one plan in words: prices, what the run takes and costs, its lines, own terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....catalog.text.money import format_money, format_money_interval, format_price
from ....catalog.text.quantity import UNKNOWN, format_duration, format_seconds, format_share
from ....catalog.units import SECONDS_PER_HOUR
from ....planner.plan.payment import CommitmentUse
from ....planner.plan.plan import CostLine, DataLine, Plan, RunCost
from .wording import chance_text, describe_cost, describe_spot, per_million, unknown_spot

SYMBOLS = {"EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹"}
"""Signs of currencies that stand before an amount; others follow it by their code."""
DOLLARS = "USD"
"""The unit of a line that is a share of other lines."""


def money_items(plan: Plan) -> tuple[list[str], list[str]]:
    """Return the prices, and what the run takes and costs; the latter empty without work."""
    what, usd = per_million(plan)
    prices = [] if usd == UNKNOWN else [f"{usd} per 1M {what}"]
    hourly = format_price(plan.usd_per_hour)
    prices.insert(0, "price unknown" if hourly == UNKNOWN else f"{hourly}/h for all nodes")
    spot = plan.offer.spot_usd_per_hour
    if spot is not None:
        prices.append(f"spot {format_price(spot * plan.nodes)}/h")
    elif unknown_spot(plan) == UNKNOWN:
        prices.append("spot price not known")
    elif plan.offer.purchase != "owned":
        prices.append("not sold as spot")
    run = plan.run
    if run is None:
        return prices, []
    job = [f"{run.steps:,} steps", plan.hours_text, describe_cost(plan)]
    if run.spot_usd is not None:
        job.append(f"on spot {describe_spot(plan)} with its interruptions")
    job += _stops_items(plan, run)
    return prices, job


def terms_items(plan: Plan) -> list[str]:
    """Return what a commitment of the plan costs and how much of it the job uses; or nothing."""
    use = plan.commitment
    if use is None:
        return []
    if use.block_days is not None:
        return _block_items(use)
    years = f"{use.term_years:g} year{'' if use.term_years == 1 else 's'}"
    if use.terms > 1:
        years = f"{use.terms} times {years}"
    kind = "commitment" if use.nodes_held is None else f"reservation of {use.nodes_held}"
    items = [f"{kind}: {years} for {format_money(use.usd)}"]
    if use.used_share is None or use.unused_usd is None:
        return [*items, "the price is that of every hour of it"]
    items.append(f"this job uses {chance_text(use.used_share)} of it")
    counted = "counted here" if use.unused_is_counted else "not counted here"
    items.append(f"unused rest {format_money(use.unused_usd)}, {counted}")
    if use.used_share >= 1 and use.unused_is_counted:
        what = "the hours after it on demand, for less than another term"
        return [*items, *([] if use.further_usd is None else [f"{what}: {_mean(use)}"])]
    return [*items, *_further_items(use, "hours on demand")]


def _block_items(use: CommitmentUse) -> list[str]:
    days = f"{use.block_days} day{'' if use.block_days == 1 else 's'}"
    blocks = "capacity block" if use.terms == 1 else f"{use.terms} capacity blocks"
    items = [f"{blocks}: {days} for {format_money(use.usd)}, paid on the first"]
    if use.used_share is None or use.unused_usd is None:
        return [*items, "the shortest that is sold"]
    items.append(f"this job uses {chance_text(use.used_share)} of it")
    items.append(f"unused rest {format_money(use.unused_usd)}, counted here")
    return [*items, *_further_items(use, "more days")]


def _further_items(use: CommitmentUse, what: str) -> list[str]:
    """Return what is counted for runs that take longer than what they pay first; or nothing."""
    if use.further_usd is None:
        return []
    return [f"{what} where it takes longer: {_mean(use)}"]


def _mean(use: CommitmentUse) -> str:
    return f"{format_money(use.further_usd)} on average"


def own_items(plan: Plan) -> list[str]:
    """Return the cost in the user's currency, and what their credits pay of it; or nothing."""
    items = []
    currency, job = plan.currency, plan.job
    if currency is not None and job is not None and job.usd is not None:
        rate = currency.per_usd
        amounts = (None if usd is None else usd * rate for usd in plan.usd_ends)
        text = format_money_interval(*amounts).replace("$", SYMBOLS.get(currency.code, ""))
        unit = "" if currency.code in SYMBOLS else f" {currency.code}"
        items.append(f"{text}{unit} at {rate:g} of {currency.date.isoformat()}")
    for credit in plan.credits:
        until = credit.expires.isoformat()
        items.append(f"credits cover {format_money(credit.covers_usd)} of it until {until}")
    return items


def paid_lines(plan: Plan) -> list[CostLine]:
    """Return the lines of the cost that a reader sees: those of no cost at all are left out."""
    return [] if plan.job is None else [line for line in plan.job.cost_lines if line.usd]


def priced(line: CostLine) -> str:
    """Return what a line counts: "2.5 instance-hour at $3.06", or "19 % of $245" of a tax."""
    if line.unit == DOLLARS:
        return f"{float(line.unit_usd) * 100:g} % of {format_money(line.quantity)}"
    return f"{amount_text(line.quantity)} {line.unit} at {format_price(line.unit_usd)}"


def amount_text(quantity: float) -> str:
    """Return an amount with a tenth, and a small one with two digits that say something."""
    return f"{quantity:,.1f}" if quantity >= 1 else f"{quantity:.2g}"


def data_items(plan: Plan) -> list[str]:
    """Return what the cost holds beside the machines, and what it does not; or nothing."""
    job = plan.whole_job
    lines = () if job is None else job.data_lines
    if job is None or not lines:
        return []
    is_taxed = any(line.unit == DOLLARS for line in lines)
    paid = [line for line in lines if line.unit != DOLLARS]
    held = [line for line in paid if line.is_certain and line.usd and job.usd is not None]
    items = []
    if held:
        tax = " and their tax" if is_taxed else ""
        alone = format_money(job.usd)
        items.append(f"the cost holds {_named(held)}{tax}; the machines alone {alone}")
    beside = [line for line in paid if line not in held]
    if beside:
        items.append(f"not in these sums: {_named(beside)}{', before tax' if is_taxed else ''}")
    return items


def _named(lines: Iterable[DataLine]) -> str:
    return ", ".join(line.text for line in lines)


def _stops_items(plan: Plan, run: RunCost) -> Iterator[str]:
    """Yield what stops and checkpoints take, and the chances of keeping to the limits."""
    if plan.stops is None or run.goodput is None or run.checkpoint_interval_s is None:
        return
    yield f"goodput {format_share(run.goodput)}"
    every, stall = run.checkpoint_interval_s, plan.stops.stall_s
    often = format_duration(every / SECONDS_PER_HOUR)
    yield f"checkpoint every {often} ({format_seconds(stall)} each)"
    expected = plan.stops.per_hour * run.hours
    yield f"{'less than 0.01' if expected < 0.01 else f'{expected:.2g}'} stops expected"
    if run.deadline_probability is not None:
        yield f"{chance_text(run.deadline_probability)} sure to meet the deadline"
    if run.budget_probability is not None:
        yield f"{chance_text(run.budget_probability)} sure to keep to the budget"
