"""Whether a step fits, as text for a terminal: yes or no, how much, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from ....catalog.text.quantity import format_gib, format_part, format_samples
from ..text.columns import packed
from ..text.notes import joined_notes
from .explain import memory_bars

if TYPE_CHECKING:
    from ....planner.predict.fits import FitsAnswer


def render_fits(answer: FitsAnswer, *, width: int) -> list[Text]:
    """Return the answer as lines; the first word is Yes or No."""
    lines = [*_verdict(answer, width), *_largest(answer), Text()]
    lines += memory_bars(answer.peak_memory_bytes, answer.memory_breakdown_bytes, width)
    if answer.is_doubtful or not answer.fits:
        lines += [Text(), *_remedies(answer)]
    if answer.notes:
        lines.append(Text())
    for note in joined_notes(answer.notes):
        first, *more = packed(f"Note: {note}".split(), width=width, indent=0, separator=" ")
        lines += [Text(first), *(Text(f"  {line}") for line in more)]
    return lines


def _verdict(answer: FitsAnswer, width: int) -> Iterator[Text]:
    word, style = ("Yes", "bold green") if answer.fits else ("No", "bold red")
    style = "bold yellow" if answer.is_doubtful else style
    yield Text.assemble((word, style), f", {_facts(answer)}")
    if answer.may_run_out:
        chance = format_part(answer.p_oom)
        yield Text(
            f"It runs out of memory with a chance of {chance}: the peak is not known better."
        )
    source = answer.micro_batch_source
    how = [
        f"{format_samples(answer.micro_batch)} per accelerator{_MICRO_BATCH_FROM[source]}",
        answer.precision,
        *([f"frozen {answer.frozen_precision}"] if answer.frozen_precision else []),
        str(answer.layout),
        answer.optimizer,
        f"recompute {answer.recompute}",
        *([f"offload {'+'.join(answer.offloaded)}"] if answer.offloaded else []),
    ]
    for line in packed(how, width=width, indent=0):
        yield Text(line, style="dim")


def _facts(answer: FitsAnswer) -> str:
    peak, least = answer.peak_memory_bytes, answer.least_memory_bytes
    has = f"{format_gib(peak.capacity)} on {answer.accelerator}"
    if answer.fits and answer.memory_is_short and least is not None:
        return f"it needs {format_gib(least)} of {has}, but would take more: the pool runs full."
    rest = "to spare" if answer.fits else "too much"
    difference = f"{format_gib(abs(answer.spare_bytes))} {rest}"
    if answer.fits and least is not None and peak.high > peak.capacity and least < peak.low:
        difference += f", and could run in {format_gib(least)}"
    return f"it takes {format_gib(peak.value)} of {has}: {difference}."


_MICRO_BATCH_FROM = {
    "option": "",
    "file": " (the default of make_batch)",
    "default": " (--micro-batch sets another)",
}


def _largest(answer: FitsAnswer) -> Iterator[Text]:
    largest = answer.largest_micro_batch
    if largest is None:
        yield Text("Not even one sample fits so.")
    elif not answer.largest_is_safe:
        yield Text(f"No micro-batch fits as surely as a plan should; {largest:,} likely fits.")
    else:
        surely = " as surely as a plan should" if answer.is_doubtful else ""
        yield Text(f"Largest micro-batch that fits{surely}: {largest:,}.")
    if not answer.smaller_fit:
        yield Text("Not every smaller one does: what the allocator leaves unused varies.")


def _remedies(answer: FitsAnswer) -> Iterator[Text]:
    if not answer.remedies:
        surely = "" if not answer.is_doubtful else "more surely "
        yield Text(
            f"Nothing that was tried makes it fit {surely}here; see `gpuplan estimate` for others."
        )
        return
    how = "more surely with" if answer.is_doubtful else "with"
    any_one = " any one of" if len(answer.remedies) > 1 else ""
    yield Text(f"It would fit {how}{any_one}", style="bold")
    widest = max(len(remedy.text) for remedy in answer.remedies)
    for remedy in answer.remedies:
        peak = format_gib(remedy.peak_bytes)
        yield Text(f"  {remedy.text:<{widest}}  {peak}, {format_samples(remedy.micro_batch)} each")
