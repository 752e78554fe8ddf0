"""A plan and its numbers in words, as every view of it says them."""

from __future__ import annotations

from collections.abc import Iterable

from ....catalog.text.money import (
    format_money,
    format_money_interval,
    format_money_range,
    round_money_interval,
)
from ....catalog.text.quantity import DASH, UNKNOWN, format_share
from ....planner.plan.answer.answer_parts import CompileGain, Rejected
from ....planner.plan.plan import AT_LEAST, Plan

REJECTIONS = {
    "out_of_memory": "did not fit",
    "over_budget": "over the budget",
    "past_deadline": "past the deadline",
    "indivisible": "did not divide the global batch",
    "no_price": "without a price",
    "no_spec": "without a specification",
    "no_topology": "without a known network",
    "unsupported": "not supported",
}


def chance_text(chance: float) -> str:
    """Return a chance as a percentage that is never rounded to certainty."""
    if chance < 0.01:
        return "less than 1 %"
    return "more than 99 %" if chance > 0.99 else f"{chance * 100:.0f} %"


def describe_rejected(rejected: Rejected) -> list[str]:
    """Return "41,204 did not fit", "610 without a price" …, only what happened."""
    counts = {name: getattr(rejected, name) for name in REJECTIONS}
    return [f"{count:,} {REJECTIONS[name]}" for name, count in counts.items() if count]


def describe_cost(plan: Plan) -> str:
    """Return the cost of the whole job as an interval, or "price unknown"."""
    if plan.job is None:
        return "price unknown"
    text = format_money_interval(*plan.usd_ends)
    return f"{AT_LEAST if plan.is_lower_bound else ''}{text}"


def describe_compile_gain(gain: CompileGain) -> str:
    """Return what --compile would gain on the recommended plan.

    In two digits: more would promise what the interval does not.
    """
    cost = "" if gain.usd is None else f", {format_money(float(f'{gain.usd:.2g}'))}"
    return f"with torch.compile (--compile): about {gain.times_as_fast:.1f} times as fast{cost}"


def describe_spot(plan: Plan) -> str:
    """Return what the run costs on the spot market of the plan's region, interruptions counted.

    "?" where that price is not known; a dash where the type is not sold so.
    """
    usd = likely_spot_usd(plan)
    return unknown_spot(plan) if usd is None else format_money(usd)


def likely_spot_usd(plan: Plan) -> float | None:
    """Return the same in US dollars, with as many digits as are known; None where it is not."""
    job = plan.job
    if job is None or job.spot_usd is None:
        return None
    whole = plan.whole_job
    total = None if whole is None else whole.spot_total_usd
    return _as_known(plan, float(job.spot_usd if total is None else total))


def describe_on_demand(plan: Plan) -> str:
    """Return what the run of a spot plan costs on demand; "?" where that is not known."""
    usd = likely_on_demand_usd(plan)
    return UNKNOWN if usd is None else format_money(usd)


def likely_on_demand_usd(plan: Plan) -> float | None:
    """Return the same in US dollars, with as many digits as are known; None where it is not."""
    whole = plan.whole_job
    if whole is None or whole.on_demand_usd is None:
        return None
    return _as_known(plan, float(whole.on_demand_usd))


def _as_known(plan: Plan, usd: float) -> float:
    """Return dollars with as many digits as the interval of the step leaves."""
    time = plan.step_time_s
    rounded = round_money_interval(usd * time.low / time.value, usd, usd * time.high / time.value)
    return float(rounded[1])


def unknown_spot(plan: Plan) -> str:
    """Return "?" where the spot price is not known, and a dash where the type is not sold so."""
    if plan.offer.purchase == "owned" or plan.offer.spot_status == "not sold":
        return DASH
    return UNKNOWN


def spot_marks(plans: Iterable[Plan]) -> list[str]:
    """Return what the marks in a column of spot prices mean, as far as it has them."""
    shown = list(plans)
    found = {unknown_spot(plan) for plan in shown if plan.offer.spot_usd_per_hour is None}
    is_any_known = all(plan.offer.usd_per_hour is not None for plan in shown)
    if not is_any_known:
        found.add(UNKNOWN)
    meanings = {
        UNKNOWN: f"{UNKNOWN} {'spot price' if is_any_known else 'price'} not known",
        DASH: f"{DASH} not sold as spot",
    }
    return [meaning for mark, meaning in meanings.items() if mark in found]


def describe_use(plan: Plan) -> str:
    """Return the share of the peak that limits the plan: "41 %" MFU, or "62 % bw" of bandwidth."""
    if plan.is_bandwidth_bound and plan.bandwidth_share is not None:
        return f"{format_share(min(1.0, plan.bandwidth_share))} bw"
    return format_share(plan.mfu)


def per_million(plan: Plan) -> tuple[str, str]:
    """Return ("tokens" or "samples", the price of a million of them as a range)."""
    usd, what = plan.usd_per_million_tokens, "tokens"
    if plan.tokens_per_s is None:
        usd, what = plan.usd_per_million_samples, "samples"
    if usd is None:
        return what, UNKNOWN
    time = plan.step_time_s
    return what, format_money_range(usd * time.low / time.value, usd, usd * time.high / time.value)
