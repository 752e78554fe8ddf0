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
    if answer.is_risky or not answer.fits:
        lines += [Text(), *_remedies(answer)]
    if answer.notes:
        lines.append(Text())
    for note in joined_notes(answer.notes):
        first, *more = packed(f"Note: {note}".split(), width=width, indent=0, separator=" ")
        lines += [Text(first), *(Text(f"  {line}") for line in more)]
    return lines


def _verdict(answer: FitsAnswer, width: int) -> Iterator[Text]:
    peak = answer.peak_memory_bytes
    size = f"{format_gib(peak.value)} of {format_gib(peak.capacity)}"
    difference = format_gib(abs(answer.spare_bytes))
    word, style, rest = "No", "bold red", "too much"
    if answer.fits:
        word, style, rest = "Yes", "bold green", "to spare"
    facts = f", it takes {size} on {answer.accelerator}: {difference} {rest}."
    yield Text.assemble((word, "bold yellow" if answer.is_risky else style), facts)
    if answer.is_risky:
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
        surely = " as surely as a plan should" if answer.is_risky else ""
        yield Text(f"Largest micro-batch that fits{surely}: {largest:,}.")


def _remedies(answer: FitsAnswer) -> Iterator[Text]:
    if not answer.remedies:
        surely = "" if not answer.is_risky else "more surely "
        yield Text(
            f"Nothing that was tried makes it fit {surely}here; see `gpuplan estimate` for others."
        )
        return
    how = "more surely with" if answer.is_risky else "with"
    any_one = " any one of" if len(answer.remedies) > 1 else ""
    yield Text(f"It would fit {how}{any_one}", style="bold")
    widest = max(len(remedy.text) for remedy in answer.remedies)
    for remedy in answer.remedies:
        peak = format_gib(remedy.peak_bytes)
        yield Text(f"  {remedy.text:<{widest}}  {peak}, {format_samples(remedy.micro_batch)} each")
