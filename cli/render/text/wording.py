"""A plan and its numbers in words, as every view of it says them."""

from __future__ import annotations

from ....planner.plan.plan import Plan, Rejected
from .money import format_money, format_money_interval, format_money_range, round_money_interval
from .quantity import UNKNOWN, format_hours_range

REJECTIONS = {
    "out_of_memory": "did not fit",
    "no_price": "without a price",
    "no_spec": "without a specification",
    "no_topology": "without a known network",
    "over_budget": "over the budget",
    "past_deadline": "past the deadline",
    "indivisible": "did not divide the global batch",
    "unsupported": "not supported",
}


def describe_accelerators(plan: Plan) -> str:
    """Return "8 × A100-40GB-SXM"."""
    return f"{plan.accelerators} × {plan.offer.accelerator}"  # noqa: RUF001


def describe_place(plan: Plan) -> str:
    """Return "aws 2 × p4d.24xlarge us-east-1", with the way of buying unless it is on demand."""
    offer = plan.offer
    times = f"{plan.nodes} × " if plan.nodes > 1 else ""  # noqa: RUF001
    zone = offer.zone or offer.region
    bought = "" if offer.purchase == "on-demand" else f" {offer.purchase}"
    return f"{offer.provider} {times}{offer.instance_type} {zone}{bought}"


def describe_rejected(rejected: Rejected) -> list[str]:
    """Return "41,204 did not fit", "610 without a price" …, only what happened."""
    counts = {name: getattr(rejected, name) for name in REJECTIONS}
    return [f"{count:,} {REJECTIONS[name]}" for name, count in counts.items() if count]


def describe_cost(plan: Plan) -> str:
    """Return the cost of the run as an interval, or "price unknown"."""
    run = plan.run
    if run is None:
        return "price unknown"
    return format_money_interval(run.usd_low, run.usd, run.usd_high)


def describe_hours(plan: Plan) -> str:
    """Return the length of the run as an interval, or "?" without an amount of work."""
    run = plan.run
    return UNKNOWN if run is None else format_hours_range(run.hours_low, run.hours, run.hours_high)


def describe_spot(plan: Plan) -> str:
    """Return what the run costs on the spot market of the plan's region, undisturbed.

    "?" where that price is not known; an empty cell for machines of one's own.
    """
    if plan.run is None or plan.run.spot_usd is None:
        return unknown_spot(plan)
    time, usd = plan.step_time_s, plan.run.spot_usd
    rounded = round_money_interval(usd * time.low / time.value, usd, usd * time.high / time.value)
    return format_money(rounded[1])


def unknown_spot(plan: Plan) -> str:
    """Return "?" where the spot price is not known, and nothing where there is no such market."""
    return "" if plan.offer.purchase == "owned" else UNKNOWN


def per_million(plan: Plan) -> tuple[str, str]:
    """Return ("tokens" or "samples", the price of a million of them as a range)."""
    usd, what = plan.usd_per_million_tokens, "tokens"
    if plan.tokens_per_s is None:
        usd, what = plan.usd_per_million_samples, "samples"
    if usd is None:
        return what, UNKNOWN
    time = plan.step_time_s
    return what, format_money_range(usd * time.low / time.value, usd, usd * time.high / time.value)
