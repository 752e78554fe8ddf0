"""What a change is worth in words: the first lines of the answer."""

from __future__ import annotations

from collections.abc import Sequence

from ...catalog.text.money import format_money
from ...catalog.text.quantity import (
    format_count,
    format_duration,
    format_memory_use,
    format_seconds,
)
from ..plan.plan import Plan
from .answer import Change
from .time_and_cost import cost_of

NO_RISK = "none that is known"
SAME = 0.005
"""A smaller share of the time, or of the cost, is not worth a figure."""
ENDS_RISK = "ends the risk of running out of memory"
MUCH_LESS = 0.5
"""Of the cost of one change: several at once are more work, and must be worth it. A judgement."""
UNTOLD = "nothing that was tried on this machine makes a difference that can be told"


def headline(
    today: Plan, changes: Sequence[Change], together: Change | None, *, today_fits: bool
) -> str:
    """Return the first thing to do on the same machine, in one sentence.

    What may end at another loss is the first thing only where nothing else helps.

    Args:
        today: today's plan.
        changes: ranked.
        together: everything free on the same machine, where that is better.
        today_fits: whether today's setting fits in memory.
    """
    here = [one for one in changes if one.kind != "machine"]
    here.sort(key=lambda one: one.alters_training)
    if not today_fits:
        return _made_to_fit(today, here, together)
    helping = [one for one in here if one.verdict == "saves"]
    return f"{sentence(helping[0])}." if helping else f"Leave it as it is: {UNTOLD}."


def _made_to_fit(today: Plan, here: Sequence[Change], together: Change | None) -> str:
    """Return what makes a setting fit that does not.

    One change alone, unless several at once cost much less.
    """
    peak = today.peak_memory_bytes
    short = f"It does not fit: {format_memory_use(peak.value, peak.capacity)}."
    fitting = [one for one in here if one.verdict == "makes_it_fit"]
    if fitting and (together is None or not _costs_much_less(together.plan, fitting[0].plan)):
        return f"{short} {sentence(fitting[0])}."
    if together is None:
        return f"{short} Nothing that was tried makes it fit on this machine."
    several = sentence(together)
    if not fitting:
        return f"{short} No single change makes it fit here; several do: {several}."
    return f"{short} Several changes at once cost least: {several}. Alone: {sentence(fitting[0])}."


def _costs_much_less(several: Plan, single: Plan) -> bool:
    less, more = cost_of(several), cost_of(single)
    return less is not None and more is not None and less.value < MUCH_LESS * more.value


def elsewhere(changes: Sequence[Change]) -> str | None:
    """Return the best other machine in one sentence; None where none saves anything."""
    found = next(
        (c for c in changes if c.kind == "machine" and c.verdict in ("saves", "makes_it_fit")), None
    )
    return None if found is None else f"Elsewhere: {sentence(found)}."


def sentence(change: Change) -> str:
    """Return a change with its gain and its first risk: "Compile it: 470 → 394 ms a step, …".

    The risk comes first where the loss may end elsewhere.
    """
    risk = change.risks[0] if change.risks else NO_RISK
    if change.alters_training:
        return f"{_deed(change)}, if the loss allows it ({risk}): {change.gain}"
    return f"{_deed(change)}: {change.gain}; risk: {risk}"


def _deed(change: Change) -> str:
    """Return what is to be done."""
    plan = change.plan
    if change.kind == "compile":
        return "Compile it" if plan.compile else "Do not compile it"
    if change.kind == "precision" and plan.frozen_precision is not None:
        return f"Keep what is not trained in {plan.frozen_precision}"
    if change.kind == "precision":
        return f"Train in {plan.precision}"
    if change.kind == "recompute":
        blocks = plan.recompute_layers
        return {
            "none": "Recompute nothing",
            "selective": "Recompute all but matrix products",
            "full": "Recompute every block" if blocks is None else f"Recompute {blocks} blocks",
        }[plan.recompute]
    if change.kind == "sharding":
        return f"Lay it out as {plan.layout}"
    if change.kind == "optimizer":
        return f"Take {plan.optimizer} as the optimizer"
    if change.kind == "attention":
        return "Give attention is_causal=True in place of its causal mask"
    if change.kind == "memory_order":
        return "Keep images and weights in channels-last order"
    if change.kind == "odd_width":
        return f"Pad the {change.text}"
    if change.kind == "fused_optimizer":
        return f"Fuse torch's {plan.optimizer} (fused=True)"
    if change.kind == "offload":
        return f"Keep {' and '.join(plan.offloaded) or 'nothing'} in host memory"
    return change.text if change.kind in ("machine", "together") else _upper(change.text)


def gain_text(change: Change, today: Plan) -> str:
    """Return what a change does to the step, the job and its cost; its memory where it now fits.

    Where it takes a risk of running out of memory away, that too.
    """
    plan = change.plan
    if change.time_saved_share is None:
        usd = plan.likely_usd if plan.job is not None else None
        cost = [] if usd is None else [format_money(usd)]
        peak = plan.peak_memory_bytes
        memory = format_memory_use(peak.value, peak.capacity)
        return ", ".join([memory, f"{format_seconds(plan.step_time_s.value)} a step", *cost])
    safer = [ENDS_RISK] if change.ends_oom_risk else []
    return ", ".join([pace_text(plan, today), saved_text(change, today), *safer])


def pace_text(plan: Plan, today: Plan) -> str:
    """Return "470 → 394 ms a step", or samples a second where the global batches differ."""
    if plan.global_batch != today.global_batch:
        rates = f"{format_count(today.samples_per_s)} → {format_count(plan.samples_per_s)}"
        return f"{rates} samples/s"
    before = format_seconds(today.step_time_s.value)
    after = format_seconds(plan.step_time_s.value)
    number, _, unit = before.partition(" ")
    first = number if after.endswith(f" {unit}") else before
    return f"{first} → {after} a step"


def saved_text(change: Change, today: Plan) -> str:
    """Return "saves 0.5 h and $9.10 of $56", or shares without an amount of work.

    Of a change between settings that both fit.
    """
    if change.hours_saved is None or today.job is None:
        return _shares(change)
    hours, usd = change.hours_saved, change.usd_saved
    time = format_duration(abs(hours))
    same_time = abs(change.time_saved_share or 0.0) < SAME
    if usd is None:
        if same_time:
            return "takes the same time"
        return f"saves {time}" if hours > 0 else f"takes {time} more"
    money, whole = format_money(abs(usd)), format_money(today.likely_usd)
    same_cost = abs(change.cost_saved_share or 0.0) < SAME
    if same_time and same_cost:
        return "takes as long and costs as much"
    if same_time or same_cost:
        return _one_saved(None if same_time else hours, usd, time, money, whole)
    if hours > 0 and usd > 0:
        return f"saves {time} and {money} of {whole}"
    if hours < 0 and usd < 0:
        return f"takes {time} and {money} more"
    if usd > 0:
        return f"saves {money} of {whole}, takes {time} more"
    return f"saves {time}, costs {money} more"


def _one_saved(hours: float | None, usd: float, time: str, money: str, whole: str) -> str:
    """Return what changes where the time (None) or the cost stays what it was."""
    if hours is None and usd > 0:
        return f"saves {money} of {whole} in the same time"
    if hours is None:
        return f"costs {money} more in the same time"
    return f"saves {time} at the same cost" if hours > 0 else f"takes {time} more at the same cost"


def _shares(change: Change) -> str:
    shares = {"time": change.time_saved_share, "money": change.cost_saved_share}
    known = {name: f"{share * -100:+.0f} %" for name, share in shares.items() if share is not None}
    none = {"-0 %": "0 %", "+0 %": "0 %"}
    texts = {name: none.get(text, text.replace("-", "−")) for name, text in known.items()}  # noqa: RUF001
    if len(set(texts.values())) == 1:
        return f"{next(iter(texts.values()))} {' and '.join(texts)} a sample"
    return f"{', '.join(f'{text} {name}' for name, text in texts.items())} a sample"


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]
