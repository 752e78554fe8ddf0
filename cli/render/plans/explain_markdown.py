"""One plan in full as Markdown, for a pull request or a page: what `show` prints, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ....catalog.text.money import format_money, format_price
from ....catalog.text.quantity import format_bytes, format_gib, format_part, format_seconds
from ....planner.plan.answer.estimate import Estimate
from ....planner.plan.plan import Plan
from ..text.energy import energy_items
from ..text.grid import Column, Grid, markdown_table
from ..text.money_items import (
    DOLLARS,
    amount_text,
    data_items,
    money_items,
    own_items,
    paid_lines,
    terms_items,
)
from .explain import (
    MEMORY_PARTS,
    STEP_PARTS,
    notes_of,
    origins,
    parts_of,
    risk_text,
    setup_items,
    speed_items,
)
from .ways_to_pay import deadline_lines

Rows = list[tuple[str, ...]]


def plan_markdown(plan: Plan, answer: Estimate | None, *, sources: Mapping[str, str]) -> str:
    """Return one plan in full: setup, step, memory, money, sources and notes.

    Args:
        plan: The plan.
        answer: The estimate it is from; None where that is not known.
        sources: What → where the catalogue has it from.
    """
    lines = [f"### Plan {plan.id}: {plan.place} ({plan.devices})", ""]
    lines += [f"- {item}" for item in setup_items(plan, answer)[1:]]
    for part in (_step(plan), _memory(plan), _money(plan)):
        lines += ["", *part]
    lines += ["", f"#### Energy: {' · '.join(energy_items(plan))}"]
    named: Rows = list(origins(plan, answer, sources).items())
    lines += ["", "#### Where the numbers come from", "", _table(("number", "from"), named)]
    notes = notes_of(plan)
    if notes:
        lines += ["", "#### Notes", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _step(plan: Plan) -> Iterator[str]:
    time = plan.step_time_s
    interval = f"80 %: {format_seconds(time.low)} to {format_seconds(time.high)}"
    yield f"#### Step: {format_seconds(time.value)} ({interval})"
    yield ""
    parts = parts_of(plan.breakdown_s, STEP_PARTS)
    rows = [(name, format_seconds(s), format_part(s / time.value)) for name, s in parts.items()]
    yield _table(("part", "time", "share"), rows)
    yield ""
    yield " · ".join(speed_items(plan))


def _memory(plan: Plan) -> Iterator[str]:
    peak = plan.peak_memory_bytes
    interval = f"80 %: {format_gib(peak.low)} to {format_gib(peak.high)}"
    yield f"#### Memory: {format_gib(peak.value)} of {format_gib(peak.capacity)} ({interval})"
    yield ""
    parts = parts_of(plan.memory_breakdown_bytes, MEMORY_PARTS)
    rows = [(name, format_bytes(b), format_part(b / peak.capacity)) for name, b in parts.items()]
    yield _table(("part", "bytes", "share of the device"), rows)
    if plan.p_oom is not None:
        yield ""
        yield f"It {risk_text(plan.p_oom)}."


def _money(plan: Plan) -> Iterator[str]:
    yield "#### Money"
    yield ""
    rows = (*money_items(plan), terms_items(plan), own_items(plan))
    yield from (f"- {' · '.join(items)}" for items in rows if items)
    yield from (f"- {line}" for line in deadline_lines(plan))
    job = plan.job
    if job is not None and job.cost_lines:
        rows = [
            (
                line.name,
                f"{amount_text(line.quantity)} {line.unit}",
                f"{float(line.unit_usd) * 100:g} %"
                if line.unit == DOLLARS
                else format_price(line.unit_usd),
                format_money(line.usd),
            )
            for line in paid_lines(plan)
        ]
        yield ""
        yield _table(("paid for", "quantity", "unit price", "cost"), rows)
    yield from (f"\n{item[0].upper()}{item[1:]}." for item in data_items(plan))


def _table(headings: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    columns = [Column(heading) for heading in headings]
    return markdown_table(Grid(columns, [list(row) for row in rows])).rstrip("\n")
