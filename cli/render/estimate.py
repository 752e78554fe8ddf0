"""An Estimate as text for a terminal: the question, what to rent and why, then a row a plan."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from ...catalog.text.money import format_price
from ...catalog.text.quantity import (
    UNKNOWN,
    format_count,
    format_seconds,
    format_share,
    format_spread,
)
from ...catalog.types import CPU_PREFIX
from ...planner.plan.plan import Estimate, Plan
from .text.columns import GAP, Align, column_widths, packed, padded, total_width
from .text.energy import CARBON_HEADING, CARBON_MARK, carbon_cell
from .text.wording import (
    REJECTIONS,
    describe_cost,
    describe_rejected,
    describe_spot,
    describe_use,
    per_million,
    spot_marks,
    unknown_spot,
)

TIE = "≈"
BEYOND_THE_USER = ("indivisible", "no_price", "no_spec", "no_topology", "unsupported")
LABEL_WIDTH = 20
SCREEN_LINES = 24
"""What an answer of ten rows is to fit on."""
NEXT_SEPARATORS = ("   ·   ", "  ·  ")
USE = "MFU"
BANDWIDTH_MARK = "bw: share of memory bandwidth, which bounds the step"
NOT_COUNTED = "not in these sums: disks, storage, egress (gpuplan show)"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table of plans."""

    heading: str
    cell: Callable[[Plan], str]
    align: Align = "right"
    gives_way: int = 0
    """Where the lines are too long, columns leave in this order, 1 first; 0 always stays."""
    is_dim: bool = False


def render_estimate(answer: Estimate, *, model: str, width: int) -> list[Text]:
    """Return the default view of an estimate, as lines.

    Args:
        answer: The estimate.
        model: The model as it was typed, for the command to type next.
        width: Columns of the terminal.
    """
    asked = list(_asked(answer, width))
    if not answer.plans:
        return [*asked, Text(), *_no_plan(answer, model, width)]
    own, apart, cpus = split_blocks(answer.plans)
    table = _Table.of(answer, width)
    rows = [table.header(), *table.rows(own), *table.rows(apart)]
    if cpus:
        rows.append(Text("On host processors alone, for comparison:"))
        rows += table.rows(cpus)
    rest = [*_footer(answer, width, table.headings), *_next_step(answer, model, width)]
    return _spaced([asked, list(_first_lines(answer, width)), rows], rest)


def _spaced(parts: list[list[Text]], rest: list[Text]) -> list[Text]:
    """Return the parts with an empty line between them, as far as one screen has room for it."""
    used = sum(map(len, parts)) + len(rest)
    spare = len(parts) if used > SCREEN_LINES + len(parts) else max(0, SCREEN_LINES - used)
    lines: list[Text] = []
    for part in parts:
        if lines and spare:
            lines.append(Text())
            spare -= 1
        lines += part
    return lines + rest


def plan_columns(answer: Estimate) -> list[Column]:
    """Return the columns that suit an answer: hours and dollars, or rates without work."""
    max_oom = 1.0 if answer.question is None else answer.question.limits.max_oom
    # Bought on the spot market, the price of a plan is that of the market already.
    only_spot = all(plan.offer.purchase == "spot" for plan in answer.plans)
    risks = any(_risk(plan, max_oom) for plan in answer.plans)
    what, _ = per_million(answer.plans[0])
    risk = Column(heading="risk", cell=lambda plan: _risk(plan, max_oom))
    columns = [
        Column(heading="#", cell=_position),
        Column(heading="rent", cell=lambda plan: plan.place, align="left"),
        Column(heading="on", cell=lambda plan: plan.devices, align="left", gives_way=6),
    ]
    if any(plan.run for plan in answer.plans):
        spot = Column(heading="spot", cell=describe_spot, gives_way=5)
        columns += [
            *_amount(answer),
            Column(heading="time", cell=lambda plan: plan.hours_text),
            Column(heading="cost", cell=lambda plan: plan.cost_text),
            *_carbon(answer),
            *(() if only_spot else (spot,)),
            *((risk,) if risks else ()),
            Column(heading=f"{what}/s", cell=_rate, gives_way=4),
        ]
    else:
        spot = Column(heading="spot $/h", cell=_spot_per_hour, gives_way=5)
        columns += [
            Column(heading=f"{what}/s", cell=_rate),
            Column(heading="$/h", cell=_usd_per_hour, gives_way=7),
            Column(heading=f"$ per 1M {what}", cell=lambda plan: per_million(plan)[1]),
            *_carbon(answer),
            *(() if only_spot else (spot,)),
            *((risk,) if risks else ()),
        ]
    return [
        *columns,
        Column(heading="step", cell=_step_time, gives_way=2),
        Column(heading=USE, cell=describe_use, gives_way=1),
        Column(heading="layout", cell=_layout, align="left", gives_way=3, is_dim=True),
    ]


def _amount(answer: Estimate) -> list[Column]:
    """Return the column of what is trained, where the limits decide that."""
    if answer.plans[0].amount_text is None:
        return []
    return [Column(heading="trains", cell=lambda plan: plan.amount_text or UNKNOWN)]


def _carbon(answer: Estimate) -> list[Column]:
    """Return the column of emissions, where plans are ordered by them."""
    if answer.question is None or answer.question.sort != "carbon":
        return []
    per = "" if any(plan.run for plan in answer.plans) else " per 1M samples"
    return [Column(heading=f"{CARBON_HEADING}{per}", cell=carbon_cell)]


def split_blocks(plans: Sequence[Plan]) -> tuple[list[Plan], list[Plan], list[Plan]]:
    """Return the plans that run as they are, those that need a port, and those on CPUs alone."""
    cpus = [plan for plan in plans if plan.offer.accelerator.startswith(CPU_PREFIX)]
    rest = [plan for plan in plans if not plan.offer.accelerator.startswith(CPU_PREFIX)]
    return (
        [plan for plan in rest if not plan.stands_apart],
        [plan for plan in rest if plan.stands_apart],
        cpus,
    )


def marks(answer: Estimate, headings: Sequence[str]) -> list[str]:
    """Return what the marks of a table with these columns mean, as far as it has them."""
    found = []
    if any(plan.tie_with_previous for plan in answer.plans):
        found.append(f"{TIE} cannot be told from the row above")
    max_oom = 1.0 if answer.question is None else answer.question.limits.max_oom
    if any(plan.p_oom is not None and plan.p_oom > max_oom for plan in answer.plans):
        found.append("%: runs out of memory")
    if any(plan.usually_reserved for plan in answer.plans):
        found.append("quota: mostly by reservation")
    if any(plan.needs_build in ("other", "older") for plan in answer.plans):
        found.append("torch: needs another build")
    if any(plan.runnable is False and not plan.needs_port for plan in answer.plans):
        found.append("not run: see show")
    if any(plan.frozen_precision == "nf4" for plan in answer.plans):
        found.append("nf4: frozen base in 4 bits (QLoRA)")
    if any(plan.needs_port for plan in answer.plans):
        found.append("port: to XLA first")
    if any(heading.startswith("spot") for heading in headings):
        found += spot_marks(answer.plans)
    if any(heading.startswith(CARBON_HEADING) for heading in headings) and any(
        carbon_cell(plan) == UNKNOWN for plan in answer.plans
    ):
        found.append(CARBON_MARK)
    if USE in headings and any(plan.is_bandwidth_bound for plan in answer.plans):
        found.append(BANDWIDTH_MARK)
    return found


def counts(answer: Estimate) -> str:
    """Return how many plans fit, and how many are not shown, by the reasons that users can act on.

    The two largest of these are named.
    """
    found: list[tuple[int, str]] = []
    if answer.hidden.above_cost:
        is_limited = answer.plans and answer.plans[0].amount_text is not None
        why = "train less than a fifth of the most" if is_limited else "above 5 × the best cost"  # noqa: RUF001
        found.append((answer.hidden.above_cost, why))
    rejected = dict(answer.rejected)
    others = sum(rejected.pop(name) for name in BEYOND_THE_USER)
    found += [(count, REJECTIONS[name]) for name, count in rejected.items() if count]
    found.sort(reverse=True)
    others += sum(count for count, _ in found[2:])
    named = [f"{count:,} {why}" for count, why in found[:2]]
    named += [f"{others:,} others"] if others else []
    fit = f"{answer.feasible:,} plans fit"
    return f"{fit}; not shown: {', '.join(named)}" if named else fit


def _asked(answer: Estimate, width: int) -> Iterator[Text]:
    for line in packed(answer.asked_text, width=width, indent=0):
        yield Text(line, style="bold")
    for line in packed(answer.limits_text, width=width, indent=0):
        yield Text(line)


def _first_lines(answer: Estimate, width: int) -> Iterator[Text]:
    """Yield the plan to rent with the reason, and where the others are that people look for.

    Without an amount of work nothing is recommended, and those are shown in full.
    """
    by_id = {plan.id: plan for plan in answer.plans}
    best, large = answer.recommended, answer.recommended_on_large_clouds
    named = {name: by_id[plan_id] for name, plan_id in answer.headlines if plan_id in by_id}
    if best is None or best.id not in by_id:
        for name, plan in named.items():
            yield from _named(name.capitalize(), plan, width)
        return
    places: dict[int, list[str]] = {}
    for name, one in named.items():
        if one.id != best.id:
            places.setdefault(one.position, []).append(name)
    others = ", ".join(f"{' and '.join(names)} #{place}" for place, names in places.items())
    reason = f"{best.reason}; {others}" if others else best.reason
    if LABEL_WIDTH + len(reason) > width:
        reason = best.reason
    yield from _named("Recommended", by_id[best.id], width, reason=reason)
    if large is not None and large.id in by_id:
        yield from _named("On aws, gcp, azure", by_id[large.id], width)


def _named(label: str, plan: Plan, width: int, *, reason: str | None = None) -> Iterator[Text]:
    indent = LABEL_WIDTH
    place = f"{plan.place} ({plan.devices})"
    head = f"{label:<{indent}}"
    first, *more = packed([place, *_facts(plan)], width=width, indent=indent, separator="   ")
    line = Text(f"{head}{first.strip()}")
    line.stylize("bold green", 0, len(label))
    yield line
    yield from (Text(rest) for rest in more)
    if reason is not None:
        for rest in packed(reason.split(), width=width, indent=indent, separator=" "):
            yield Text(rest)


def _facts(plan: Plan) -> list[str]:
    bound = [] if plan.bandwidth_text is None else [plan.bandwidth_text]
    if plan.amount_text is not None:
        trains = f"trains about {plan.amount_text}"
        return [trains, f"in {plan.hours_text}", describe_cost(plan), *bound]
    if plan.run is not None:
        return [plan.hours_text, describe_cost(plan), *bound]
    what, usd = per_million(plan)
    cost = "price unknown" if usd == UNKNOWN else f"{usd} per 1M {what}"
    return [f"{_rate(plan)} {what}/s", cost, *bound]


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Columns of one width for every block of plans; what has no room is left to `show`."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]

    @classmethod
    def of(cls, answer: Estimate, width: int) -> _Table:
        """Return the table for all plans of an answer; optional columns give way in their order."""
        columns = plan_columns(answer)
        widths = _widths(columns, answer.plans)
        while total_width(widths) > width and any(one.gives_way for one in columns):
            columns.remove(min((c for c in columns if c.gives_way), key=lambda c: c.gives_way))
            widths = _widths(columns, answer.plans)
        return cls(columns=tuple(columns), widths=tuple(widths))

    @property
    def headings(self) -> list[str]:
        """The headings of the columns that have room."""
        return [column.heading for column in self.columns]

    def header(self) -> Text:
        """Return the line of headings."""
        return Text(self._line([column.heading for column in self.columns]).plain, style="bold")

    def rows(self, plans: Iterable[Plan]) -> Iterator[Text]:
        """Yield one line for each of these plans."""
        for plan in plans:
            yield self._line([column.cell(plan) for column in self.columns])

    def _line(self, cells: Sequence[str]) -> Text:
        line = Text()
        found = padded(cells, self.widths, [column.align for column in self.columns])
        for column, cell in zip(self.columns, found, strict=True):
            line.append(GAP if line else "")
            line.append(cell, style="dim" if column.is_dim else "")
        line.rstrip()
        return line


def _widths(columns: Sequence[Column], plans: Iterable[Plan]) -> list[int]:
    headings = [column.heading for column in columns]
    return column_widths([headings, *([column.cell(plan) for column in columns] for plan in plans)])


def _position(plan: Plan) -> str:
    return f"{TIE if plan.tie_with_previous else ''}{plan.position}"


def _layout(plan: Plan) -> str:
    return plan.string


def _risk(plan: Plan, max_oom: float) -> str:
    found = []
    if plan.p_oom is not None and plan.p_oom > max_oom:
        found.append(format_share(plan.p_oom))
    found += ["quota"] if plan.usually_reserved else []
    found += ["torch"] if plan.needs_build in ("other", "older") else []
    found += ["port"] if plan.needs_port else []
    found += [plan.frozen_precision] if plan.frozen_precision == "nf4" else []
    found += ["not run"] if plan.runnable is False and not plan.needs_port else []
    return ", ".join(found)


def _step_time(plan: Plan) -> str:
    time = plan.step_time_s
    return f"{format_seconds(time.value)} {format_spread(time.value, time.low, time.high)}"


def _usd_per_hour(plan: Plan) -> str:
    return format_price(plan.usd_per_hour)


def _spot_per_hour(plan: Plan) -> str:
    spot = plan.offer.spot_usd_per_hour
    return unknown_spot(plan) if spot is None else format_price(spot * plan.nodes)


def _rate(plan: Plan) -> str:
    return format_count(plan.samples_per_s if plan.tokens_per_s is None else plan.tokens_per_s)


def _no_plan(answer: Estimate, model: str, width: int) -> Iterator[Text]:
    yield Text("No plan is feasible.", style="bold red")
    for line in packed((answer.nearest_miss or "").split(), width=width, indent=0, separator=" "):
        yield Text(line)
    for line in packed(describe_rejected(answer.rejected), width=width, indent=0, separator=", "):
        yield Text(line)
    limits = answer.rejected.past_deadline or answer.rejected.over_budget
    if answer.rejected.out_of_memory and not limits:
        yield Text(f"Next: gpuplan fits {shlex.quote(model)} --on H200   (what would make it fit)")


def _footer(answer: Estimate, width: int, headings: Sequence[str]) -> Iterator[Text]:
    items = [
        *marks(answer, headings),
        *([NOT_COUNTED] if any(plan.run for plan in answer.plans) else []),
    ]
    for line in packed(items, width=width, indent=0, separator="; "):
        yield Text(line, style="dim")
    for line in packed(counts(answer).split(), width=width, indent=0, separator=" "):
        yield Text(line, style="dim")


def _next_step(answer: Estimate, model: str, width: int) -> Iterator[Text]:
    best = answer.recommended
    plan_id = answer.plans[0].id if best is None else best.id
    commands = [f"gpuplan launch {plan_id}"]
    if not any(plan.run for plan in answer.plans):
        amount = "--samples 1M" if answer.workload.tokens_per_sample is None else "--tokens 10B"
        commands = [f"gpuplan estimate {shlex.quote(model)} {amount}"]
    commands += [f"gpuplan show {plan_id}", "the same with --top all"]
    separator = NEXT_SEPARATORS[0]
    if any(plan.run for plan in answer.plans) and answer.plans[0].amount_text is None:
        with_pareto = [*commands[:-1], f"{commands[-1]} or --pareto"]
        fitting = [one for one in NEXT_SEPARATORS if len(one.join(with_pareto)) + 6 <= width]
        if fitting:
            commands, separator = with_pareto, fitting[0]
    first, *more = packed(commands, width=width, indent=6, separator=separator)
    yield Text(f"Next: {first.strip()}")
    yield from (Text(line) for line in more)
