"""An Estimate as text for a terminal: the three plans that matter, then one row per accelerator."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from ...catalog.types import CPU_PREFIX
from ...planner.plan.plan import Estimate, Plan
from .text.columns import Align, aligned, column_widths, packed, total_width
from .text.money import format_money_range, format_price
from .text.quantity import (
    UNKNOWN,
    format_count,
    format_memory_use,
    format_seconds,
    format_share,
    format_spread,
)
from .text.wording import (
    describe_accelerators,
    describe_cost,
    describe_hours,
    describe_place,
    describe_rejected,
    describe_spot,
    per_million,
    unknown_spot,
)

TIE = "≈"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table of plans."""

    heading: str
    cell: Callable[[Plan], str]
    align: Align = "right"
    label: str | None = None
    """How the cell reads when there is no room for the column; None: it always is one."""

    def item(self, plan: Plan) -> str:
        """Return the cell as an item of the second line."""
        return (self.label or "{}").format(self.cell(plan))


def render_estimate(answer: Estimate, *, model: str, width: int) -> list[Text]:
    """Return the default view of an estimate, as lines.

    Args:
        answer: The estimate.
        model: The model as it was typed, for the command to type next.
        width: Columns of the terminal.
    """
    if not answer.plans:
        return [*_no_plan(answer, model, width)]
    own, ported, cpus = split_blocks(answer.plans)
    lines = [*_headlines(answer, width), Text()]
    table = _Table.of(answer, width)
    lines.append(table.header())
    lines += table.rows(own)
    if ported:
        lines += [Text(), Text("Needs an XLA port: this torch file does not run there as it is.")]
        lines += table.rows(ported)
    if cpus:
        lines += [Text(), Text("On host processors alone, for comparison:")]
        lines += table.rows(cpus)
    lines.append(Text())
    if any(plan.tie_with_previous for plan in answer.plans):
        lines.append(Text(f"{TIE} cannot be told from the row above: their intervals overlap."))
    lines += [*_footer(answer, width), *_next_step(answer, model)]
    return lines


def plan_columns(answer: Estimate) -> list[Column]:
    """Return the columns that suit an answer: hours and dollars, or rates without work."""
    columns = [
        Column(heading="#", cell=_position),
        Column(heading="Accelerators", cell=describe_accelerators, align="left"),
        Column(heading="Step time", cell=_step_time),
        Column(heading="MFU", cell=lambda plan: format_share(plan.mfu), label="MFU {}"),
        Column(heading="Memory", cell=_memory, label="{}"),
        Column(heading="$/h", cell=_usd_per_hour, label="{}/h"),
    ]
    # Bought on the spot market, the price of a plan is that of the market already.
    only_spot = all(plan.offer.purchase == "spot" for plan in answer.plans)
    if any(plan.run for plan in answer.plans):
        spot = Column(heading="Spot", cell=describe_spot, label="spot {}")
        return [
            *columns,
            Column(heading="Time", cell=describe_hours),
            Column(heading="Cost", cell=_cost),
            *(() if only_spot else (spot,)),
        ]
    what, _ = per_million(answer.plans[0])
    spot = Column(heading="Spot $/h", cell=_spot_per_hour, label="spot {}/h")
    return [
        *columns,
        *(() if only_spot else (spot,)),
        Column(heading=f"{what.capitalize()}/s", cell=_rate),
        Column(heading=f"$ per 1M {what}", cell=lambda plan: per_million(plan)[1]),
    ]


def split_blocks(plans: Sequence[Plan]) -> tuple[list[Plan], list[Plan], list[Plan]]:
    """Return the plans that run as they are, those that need a port, and those on CPUs alone."""
    cpus = [plan for plan in plans if plan.offer.accelerator.startswith(CPU_PREFIX)]
    rest = [plan for plan in plans if not plan.offer.accelerator.startswith(CPU_PREFIX)]
    return (
        [plan for plan in rest if not plan.needs_port],
        [plan for plan in rest if plan.needs_port],
        cpus,
    )


def _headlines(answer: Estimate, width: int) -> Iterator[Text]:
    by_id = {plan.id: plan for plan in answer.plans}
    rows: list[tuple[str, Plan, list[str]]] = []
    for name, plan_id in answer.headlines:
        if plan_id in by_id:
            plan = by_id[plan_id]
            rows.append((name.capitalize(), plan, _facts(name, plan)))
    if not rows:
        return
    labels = [(label, f"#{plan.position}", describe_accelerators(plan)) for label, plan, _ in rows]
    widths = column_widths(labels)
    for cells, (_, _, facts) in zip(labels, rows, strict=True):
        head = aligned(cells, widths, ("left", "right", "left"))
        indent = sum(widths) + 6
        first, *more = packed(facts, width=width, indent=indent)
        line = Text(f"{head:<{indent}}{first.strip()}")
        line.stylize("bold green", 0, len(cells[0]))
        yield line
        yield from (Text(rest) for rest in more)


def _facts(name: str, plan: Plan) -> list[str]:
    if plan.run is not None:
        cost, time = describe_cost(plan), describe_hours(plan)
    else:
        what, usd = per_million(plan)
        cost = "price unknown" if usd == UNKNOWN else f"{usd} per 1M {what}"
        time = f"{_rate(plan)} {what}/s"
    memory = plan.peak_memory_bytes
    facts = {"cheapest": [cost, time], "fastest": [time, cost]}.get(
        name, [format_memory_use(memory.value, memory.capacity), cost, time]
    )
    return facts


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Columns of one width for every block of plans; what has no room goes on a second line."""

    shown: tuple[Column, ...]
    rest: tuple[Column, ...]
    widths: tuple[int, ...]
    width: int

    @classmethod
    def of(cls, answer: Estimate, width: int) -> _Table:
        """Return the table for all plans of an answer; optional columns give way in their order."""
        columns = plan_columns(answer)
        shown = list(columns)
        for column in columns:
            widths = _widths(shown, answer.plans)
            if total_width(widths) <= width:
                break
            if column.label is not None:
                shown.remove(column)
        rest = tuple(column for column in columns if column not in shown)
        widths = _widths(shown, answer.plans)
        return cls(shown=tuple(shown), rest=rest, widths=tuple(widths), width=width)

    def header(self) -> Text:
        """Return the line of headings."""
        return Text(self._line([column.heading for column in self.shown]), style="bold")

    def rows(self, plans: Iterable[Plan]) -> Iterator[Text]:
        """Yield the lines of these plans: their numbers, then where and how."""
        for plan in plans:
            yield Text(self._line([column.cell(plan) for column in self.shown]))
            items = [describe_place(plan), plan.string]
            items += [c.item(plan) for c in self.rest if c.cell(plan) not in ("", UNKNOWN)]
            items.append(plan.step_time_s.basis)
            for line in packed(items, width=self.width, indent=self.widths[0] + 2):
                yield Text(line, style="dim")

    def _line(self, cells: Sequence[str]) -> str:
        return aligned(cells, self.widths, [column.align for column in self.shown])


def _widths(columns: Sequence[Column], plans: Iterable[Plan]) -> list[int]:
    headings = [column.heading for column in columns]
    return column_widths([headings, *([column.cell(plan) for column in columns] for plan in plans)])


def _position(plan: Plan) -> str:
    return f"{TIE if plan.tie_with_previous else ''}{plan.position}"


def _step_time(plan: Plan) -> str:
    time = plan.step_time_s
    return f"{format_seconds(time.value)} {format_spread(time.value, time.low, time.high)}"


def _memory(plan: Plan) -> str:
    return format_memory_use(plan.peak_memory_bytes.value, plan.peak_memory_bytes.capacity)


def _usd_per_hour(plan: Plan) -> str:
    return format_price(plan.usd_per_hour)


def _spot_per_hour(plan: Plan) -> str:
    spot = plan.offer.spot_usd_per_hour
    return unknown_spot(plan) if spot is None else format_price(spot * plan.nodes)


def _cost(plan: Plan) -> str:
    run = plan.run
    return UNKNOWN if run is None else format_money_range(run.usd_low, run.usd, run.usd_high)


def _rate(plan: Plan) -> str:
    return format_count(plan.samples_per_s if plan.tokens_per_s is None else plan.tokens_per_s)


def _no_plan(answer: Estimate, model: str, width: int) -> Iterator[Text]:
    yield Text("No plan is feasible.", style="bold red")
    for line in packed(describe_rejected(answer.rejected), width=width, indent=0, separator=", "):
        yield Text(line)
    yield from _prices(answer)
    limits = answer.rejected.past_deadline or answer.rejected.over_budget
    if answer.rejected.out_of_memory and not limits:
        yield Text(f"Next: gpuplan fits {shlex.quote(model)} --on H200   (what would make it fit)")


def _footer(answer: Estimate, width: int) -> Iterator[Text]:
    first = f"{len(answer.plans):,} of {answer.feasible:,} feasible"
    rejected = describe_rejected(answer.rejected)
    if rejected:
        first += f"; {rejected[0]}"
    for line in packed([first, *rejected[1:]], width=width, indent=0, separator=", "):
        yield Text(line)
    yield from _prices(answer)


def _prices(answer: Estimate) -> Iterator[Text]:
    catalogue = answer.catalog
    yield Text(f"Prices of {catalogue.snapshot_date.isoformat()} ({catalogue.offers:,} offers).")


def _next_step(answer: Estimate, model: str) -> Iterator[Text]:
    if not any(plan.run for plan in answer.plans):
        amount = "--samples 1M" if answer.workload.tokens_per_sample is None else "--tokens 10B"
        yield Text(f"Next: gpuplan estimate {shlex.quote(model)} {amount}   (hours and dollars)")
    first = answer.plans[0]
    yield Text(f"Next: gpuplan show {first.id}   (every part of plan {first.position})")
