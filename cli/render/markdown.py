"""Plans as a Markdown table, for a pull request or a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...planner.plan.plan import Estimate, Plan
from .estimate import TIE, Column, plan_columns, split_blocks
from .text.columns import Align
from .text.wording import describe_place, describe_rejected


def render_markdown(answer: Estimate) -> str:
    """Return the estimate as Markdown: a table for each block of plans, then the counts."""
    work, catalogue = answer.workload, answer.catalog
    lines = [f"### {_escaped(work.name)}: {work.parameters:,} parameters", ""]
    own, ported, cpus = split_blocks(answer.plans)
    columns = [
        *plan_columns(answer),
        Column(heading="Where", cell=describe_place, align="left"),
        Column(heading="How", cell=lambda plan: f"`{plan.string}`", align="left"),
        Column(heading="Plan", cell=lambda plan: f"`{plan.id}`", align="left"),
    ]
    for title, plans in (
        ("", own),
        ("Needs an XLA port:", ported),
        ("On host processors alone:", cpus),
    ):
        if plans:
            lines += [title, ""] if title else []
            lines += [*_table(plans, columns), ""]
    if not answer.plans:
        lines += ["No plan is feasible.", ""]
    if any(plan.tie_with_previous for plan in answer.plans):
        lines += [f"{TIE} cannot be told from the row above: their intervals overlap.", ""]
    counts = [f"{len(answer.plans):,} of {answer.feasible:,} feasible"]
    counts += describe_rejected(answer.rejected)
    lines.append(f"{'; '.join(counts)}. Prices of {catalogue.snapshot_date.isoformat()}.")
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
