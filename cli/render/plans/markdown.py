"""Plans as a Markdown table, for a pull request or a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....planner.plan.answer.estimate import Estimate
from ....planner.plan.plan import Plan
from ..text.columns import Align
from ..text.wording import describe_compile_gain, describe_cost
from .estimate import counts, marks, not_counted
from .plan_table import Column, plan_columns, split_blocks


def render_markdown(answer: Estimate) -> str:
    """Return the estimate as Markdown: a table for each block of plans, then the counts."""
    lines = [f"### {_escaped(' · '.join(answer.asked_text))}", ""]
    lines += [_escaped(" · ".join(answer.limits_text)), ""]
    for warning in answer.warnings:
        lines += [f"**Warning**: {_escaped(warning)}.", ""]
    own, ported, cpus = split_blocks(answer.plans)
    best = next(
        (p for p in answer.plans if answer.recommended and p.id == answer.recommended.id), None
    )
    if best is not None and answer.recommended is not None:
        rented = f"{best.place} ({best.devices})"
        amount = "" if best.amount_text is None else f"trains {best.amount_text}, "
        facts = f"{amount}{best.hours_text}, {describe_cost(best)}"
        gain = answer.recommended.with_compile
        compiled = [] if gain is None else [describe_compile_gain(gain)]
        why = "; ".join([answer.recommended.reason, *compiled])
        lines += [f"**Recommended**: {rented}, {facts}; {why}.", ""]
    elif answer.near_miss_text:
        lines += [f"{_escaped(answer.near_miss_text)}.", ""]
    columns = [
        *(plan_columns(answer) if answer.plans else ()),
        Column(heading="plan", cell=lambda plan: f"`{plan.id}`", align="left"),
    ]
    for title, plans in (
        ("", own),
        ("After a port, or with torch built from source:", ported),
        ("On host processors alone:", cpus),
    ):
        if plans:
            lines += [title, ""] if title else []
            lines += [*_table(plans, columns), ""]
    if not answer.plans:
        lines += [f"No plan is feasible. {_escaped(answer.nearest_miss or '')}".rstrip(), ""]
    meanings = marks(answer, [column.heading for column in columns]) if answer.plans else []
    if meanings:
        lines += [f"{'; '.join(meanings)}.", ""]
    for left_out in not_counted(answer.plans):
        lines += [f"{left_out.capitalize()}.", ""]
    lines.append(f"{counts(answer)}.")
    return "\n".join(lines) + "\n"


def _table(plans: Iterable[Plan], columns: Sequence[Column]) -> list[str]:
    rules: dict[Align, str] = {"left": ":---", "right": "---:"}
    return [
        _row([column.heading for column in columns]),
        _row([rules[column.align] for column in columns]),
        *(_row([_escaped(column.cell(plan)) for column in columns]) for plan in plans),
    ]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
