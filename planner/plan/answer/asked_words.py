"""The question of an answer in words: two answers can be told apart, and a pasted one proves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ....catalog.errors import UsageError
from ....catalog.text.money import format_money
from ....catalog.text.quantity import format_count, format_duration
from ....catalog.units import SECONDS_PER_HOUR
from ....profiles.user_model.lora_settings import LORA, parse_lora
from .asked import AskedBatch, AskedQuestion

PURCHASES = {
    "on-demand": "on demand",
    "spot": "on spot",
    "any": "on demand, spot or for a term",
    "committed-1y": "committed for 1 year",
    "committed-3y": "committed for 3 years",
    "reserved": "on reserved machines",
    "block": "in capacity blocks",
    "all": "on demand",
}


def work_items(asked: AskedQuestion, tokens_per_sample: float | None) -> list[str]:
    """Return the params, the work and the batch as items: "10B tokens", "57,221 steps" …."""
    items = amount_items(asked)
    items.append(_batch(asked.global_batch, tokens_per_sample))
    if asked.work.steps is not None and asked.work.kind != "steps":
        items.append(f"{asked.work.steps:,} {'step' if asked.work.steps == 1 else 'steps'}")
    return items


def _param(name: str, value: object) -> str:
    """Return a param as name=value; the adapters of an `hf:` model as "LoRA r=16 on q_proj"."""
    if name == LORA:
        # A model file may have a param of this name that means something else.
        with suppress(UsageError):
            return parse_lora(str(value)).words
    return f"{name}={value}"


def amount_items(asked: AskedQuestion) -> list[str]:
    """Return the params and the amount of work as items: "10B tokens", "3 epochs of 1M samples"."""
    params = (
        _param(name, value) + (f" ({asked.param_rules[name]})" if name in asked.param_rules else "")
        for name, value in asked.params.items()
    )
    return [*params, *_work(asked)]


def limit_items(asked: AskedQuestion) -> list[str]:
    """Return what limits the plans as items: "≤ 10 days", "≤ $5,000", "aws,gcp", "on demand"."""
    limits, machine = asked.limits, asked.machine

    def said(name: str, text: str) -> str:
        return f"{text} ({name} from your settings)" if name in asked.from_settings else text

    items = []
    if limits.deadline_s is not None:
        deadline = f"≤ {format_duration(limits.deadline_s / SECONDS_PER_HOUR)}"
        items.append(said("deadline", deadline))
    if limits.budget_usd is not None:
        items.append(said("budget", f"≤ {format_money(limits.budget_usd)}"))
    named = {
        "provider": machine.providers,
        "region": machine.regions,
        "jurisdiction": machine.jurisdictions,
        "accelerator": machine.accelerators,
        "instance": machine.instances,
        "nodes": _nodes(machine.nodes),
    }
    for name, values in named.items():
        if values:
            items.append(said(name, ",".join(values)))
    items.append(said("purchase", PURCHASES[asked.purchase]))
    if asked.sort == "carbon":
        items.append("ordered by kg CO2e, unknown last")
    return items


def _nodes(counts: Sequence[int]) -> tuple[str, ...]:
    """Return numbers of nodes as one item.

    >>> _nodes([1]), _nodes([1, 2, 4]), _nodes([])
    (('1 node',), ('1, 2 or 4 nodes',), ())
    """
    if not counts:
        return ()
    *others, last = map(str, counts)
    text = f"{', '.join(others)} or {last}" if others else last
    return (f"{text} node{'' if text == '1' else 's'}",)


def _work(asked: AskedQuestion) -> Iterator[str]:
    work = asked.work
    if work.kind == "epochs":
        epochs = "epoch" if work.amount == 1 else "epochs"
        yield f"{work.amount:,.10g} {epochs} of {format_count(work.dataset_size or 0)} samples"
    elif work.kind is not None and work.amount is not None:
        amount = f"{work.amount:,.0f}" if work.kind == "steps" else format_count(work.amount)
        yield f"{amount} {work.kind.removesuffix('s') if work.amount == 1 else work.kind}"
    elif asked.limits.budget_usd is not None:
        yield "how much can be trained"
    if work.dataset_bytes is not None:
        where = f" in {work.dataset_at}" if work.dataset_at else ""
        size_gb = work.dataset_bytes / 1e9
        yield f"data set of {size_gb:{',.0f' if size_gb >= 1 else '.2g'}} GB{where}"
    if work.eval_every is not None:
        on = "" if work.eval_samples is None else f" on {format_count(work.eval_samples)} samples"
        steps = "step" if work.eval_every == 1 else f"{work.eval_every:,} steps"
        yield f"evaluated every {steps}{on}"
    if work.critical_batch is not None:
        yield f"critical batch {format_count(work.critical_batch)}"


def _batch(batch: AskedBatch, tokens_per_sample: float | None) -> str:
    if batch.samples is None:
        return "global batch of each layout"
    size = f"global batch {batch.samples:,}"
    if tokens_per_sample is not None:
        size += f" × {tokens_per_sample:,.0f}"  # noqa: RUF001
    where = {
        "option": "from --global-batch",
        "rule": f"assumed: {batch.rule}",
        "layout": "as given",
    }[batch.source]
    return f"{size} ({where})"
