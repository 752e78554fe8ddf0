"""Advice as text for a terminal or as Markdown: what helps in full, the rest by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ....catalog.text.quantity import format_memory_use, format_seconds
from ....planner.advise.answer import HELPING
from ..text.columns import packed, wrapped, wrapped_options
from ..text.grid import Column, Grid, markdown_table

if TYPE_CHECKING:
    from ....planner.advise.answer import Advice, Change, Verdict

OTHERS: dict[Verdict, str] = {
    "no_difference": "No difference that can be told",
    "worse": "Slower or dearer",
    "does_not_fit": "Does not fit",
}
SAFER = "Ends the risk of running out of memory"
"""Heading of what neither saves time nor money, and makes a risky setting fit more surely."""
INDENT = 4
NO_RISK = "none that is known"
MOST_ALTERING = 2
"""Changes to show in full that alter the training, where not all are asked for."""
ALTERING = "If the loss allows it: these change the training"


def render_advice(answer: Advice, *, most: int | None, width: int) -> list[Text]:
    """Return the advice as lines.

    Args:
        answer: what `advise` returned.
        most: changes to show in full; None: all that help.
        width: columns.
    """
    lines = [Text(line, style="bold") for line in wrapped(answer.headline, width)]
    if answer.elsewhere:
        lines += [Text(line) for line in wrapped(answer.elsewhere, width)]
    lines += [Text(), *_today(answer, width)]
    helping, rest = _split(answer, most)
    altering = [one for one in helping if one.alters_training]
    for number, change in enumerate(helping, start=1):
        lines.append(Text())
        if altering and change is altering[0]:
            lines.append(Text(ALTERING, style="bold"))
        lines += _change(f"{number:>2}  ", change, width)
    if answer.together is not None:
        lines += [Text(), Text("All together on this machine", style="bold")]
        lines += _change(" " * INDENT, answer.together, width)
    if any(rest.values()):
        lines.append(Text())
    for title, texts in rest.items():
        if texts:
            head, *more = packed([f"{title}: {texts[0]}", *texts[1:]], width=width - 2, indent=0)
            lines += [Text(head), *(Text(f"  {line}") for line in more)]
    return lines


def _today(answer: Advice, width: int) -> Iterator[Text]:
    for line in packed(_today_items(answer), width=width, indent=0):
        yield Text(line)
    if answer.assumed:
        items = [f"not given, so taken: {answer.assumed[0]}", *answer.assumed[1:]]
        for line in packed(items, width=width, indent=0):
            yield Text(line, style="dim")


def _today_items(answer: Advice) -> list[str]:
    plan = answer.today
    peak = plan.peak_memory_bytes
    items = [
        f"Today: {plan.place} ({plan.devices})",
        plan.string,
        plan.optimizer,
        f"{format_seconds(plan.step_time_s.value)} a step",
        format_memory_use(peak.value, peak.capacity),
    ]
    return items if plan.job is None else [*items, plan.hours_text, plan.cost_text]


def _split(answer: Advice, most: int | None) -> tuple[list[Change], dict[str, list[str]]]:
    """Return the changes to show in full, and the others by name under their headings."""
    helping = [one for one in answer.changes if one.verdict in HELPING]
    same = [one for one in helping if not one.alters_training]
    altering = [one for one in helping if one.alters_training]
    if most is not None:
        same, altering = same[:most], altering[:MOST_ALTERING]
    shown = [*same, *altering]
    left = [one for one in helping if one not in shown]
    rest = {
        "Helps less": [one.text for one in left if not one.alters_training],
        "Helps less, and changes the training": [o.text for o in left if o.alters_training],
    }
    others = [one for one in answer.changes if one.verdict in OTHERS]
    rest[SAFER] = [_named(one) for one in others if one.ends_oom_risk]
    others = [one for one in others if not one.ends_oom_risk]
    for verdict, title in OTHERS.items():
        rest[title] = [_named(one) for one in others if one.verdict == verdict]
    return shown, rest


def _named(change: Change) -> str:
    share = change.time_saved_share
    if change.verdict != "worse" or share is None:
        return change.text
    return f"{change.text} ({-share:+.0%} time)".replace("%", " %")


def _change(mark: str, change: Change, width: int) -> Iterator[Text]:
    margin = " " * INDENT
    first, *others = wrapped(change.text, width - INDENT)
    yield Text.assemble(mark, (first, "bold"))
    yield from (Text(margin + line, style="bold") for line in others)
    risk = [
        Text(margin + line, style="dim")
        for line in wrapped(f"risk: {_risks(change)}", width - INDENT)
    ]
    if change.alters_training:
        yield from risk
    for line in wrapped(change.gain, width - INDENT):
        yield Text(margin + line)
    for whole in change.lines:
        lines = wrapped_options(whole, width - INDENT) if whole.startswith("--") else [whole]
        for line in lines:
            yield Text(margin + line, style="cyan")
    if not change.alters_training:
        yield from risk


def _risks(change: Change) -> str:
    return "; ".join(change.risks) or NO_RISK


def advice_markdown(answer: Advice, *, most: int | None) -> str:
    """Return the advice as Markdown: what helps as a table, the others by name."""
    helping, rest = _split(answer, most)
    if answer.together is not None:
        helping = [*helping, answer.together]
    headings = ("change", "risk", "what it does", "write")
    grid = Grid(
        columns=[Column(heading=heading) for heading in headings],
        rows=[_cells(change) for change in helping],
    )
    lines = [f"### {answer.workload.name}", "", f"**{answer.headline}**"]
    lines += ["", answer.elsewhere] if answer.elsewhere else []
    lines += ["", f"{' · '.join(_today_items(answer))}."]
    if answer.assumed:
        lines += ["", f"Not given, so taken: {'; '.join(answer.assumed)}."]
    lines += ["", markdown_table(grid)] if helping else [""]
    lines += [f"{title}: {'; '.join(texts)}.\n" for title, texts in rest.items() if texts]
    return "\n".join(lines)


def _cells(change: Change) -> Sequence[str]:
    text = f"all together: {change.text}" if change.kind == "together" else change.text
    code = "<br>".join(f"`{line}`" for line in change.lines)
    if change.alters_training:
        text += " (changes the training)"
    return text, _risks(change), change.gain, code
