"""The table of plans: its columns, the blocks of rows, and what each cell says."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from ....catalog.text.money import format_price
from ....catalog.text.quantity import (
    UNKNOWN,
    format_count,
    format_seconds,
    format_share,
    format_spread,
)
from ....catalog.types import CPU_PREFIX
from ....planner.plan.answer.estimate import Estimate
from ....planner.plan.plan import Plan
from ..text.columns import GAP, Align, column_widths, cut, padded, total_width
from ..text.energy import CARBON_HEADING, carbon_cell
from ..text.wording import (
    describe_on_demand,
    describe_spot,
    describe_use,
    per_million,
    unknown_spot,
)
from .short_cells import (
    need_regions,
    short_cost,
    short_devices,
    short_on_demand,
    short_place,
    short_place_anywhere,
    short_place_region_first,
    short_spot,
    short_time,
)

TIE = "≈"
LEFT_OUT = "…"
"""Before the number of a row, where rows above it have no room."""
USE = "MFU"
NARROWEST_PLACE = 24
"""Terminal cells that are left of what is rented, before a column leaves that is not in `EXTRA`."""
EXTRA = 3
"""Columns that leave before any cell is shortened: `gives_way` up to this."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table of plans."""

    heading: str
    cell: Callable[[Plan], str]
    align: Align = "right"
    gives_way: int = 0
    """Where the lines are too long, columns leave in this order, 1 first; 0 always stays."""
    is_dim: bool = False
    shorter: tuple[Callable[[Plan], str], ...] = ()
    """What its cells say where the lines are too long, in the order in which they are tried."""
    cut_to: int | None = None
    """Terminal cells to which it may be cut after that; None: it may not."""


def plan_columns(answer: Estimate) -> list[Column]:
    """Return the columns that suit an answer: hours and dollars, or rates without work."""
    has_work = any(plan.run for plan in answer.plans)
    return [
        *_machine_columns(answer),
        *(_run_columns(answer) if has_work else _rate_columns(answer)),
        Column(heading="step", cell=_step_time, gives_way=2),
        Column(heading=USE, cell=describe_use, gives_way=1),
        Column(heading="layout", cell=_layout, align="left", gives_way=3, is_dim=True),
    ]


def _machine_columns(answer: Estimate) -> list[Column]:
    positions = {plan.position for plan in answer.plans}
    return [
        Column(heading="#", cell=lambda plan: _position(plan, positions)),
        Column(
            heading="rent",
            cell=lambda plan: plan.place,
            align="left",
            shorter=(short_place, _narrow_place(answer)),
            cut_to=NARROWEST_PLACE,
        ),
        Column(
            heading="on",
            cell=lambda plan: plan.devices,
            align="left",
            gives_way=6,
            shorter=(short_devices,),
        ),
    ]


def _run_columns(answer: Estimate) -> list[Column]:
    """Return what the whole work takes and costs."""
    what, _ = per_million(answer.plans[0])
    return [
        *_amount(answer),
        Column(heading="time", cell=lambda plan: plan.hours_text, shorter=(short_time,)),
        Column(heading="cost", cell=lambda plan: plan.cost_text, shorter=(short_cost,)),
        *_carbon(answer),
        *_other_price(answer),
        *_risks(answer),
        Column(heading=f"{what}/s", cell=rate_cell, gives_way=4),
    ]


def _rate_columns(answer: Estimate) -> list[Column]:
    """Return what is trained and paid per unit of time, where no amount of work is known."""
    what, _ = per_million(answer.plans[0])
    spot = Column(heading="spot $/h", cell=_spot_per_hour, gives_way=5)
    return [
        Column(heading=f"{what}/s", cell=rate_cell),
        Column(heading="$/h", cell=_usd_per_hour, gives_way=7),
        Column(heading=f"$ per 1M {what}", cell=lambda plan: per_million(plan)[1]),
        *_carbon(answer),
        *(() if _is_all_spot(answer) else (spot,)),
        *_risks(answer),
    ]


def _other_price(answer: Estimate) -> list[Column]:
    """Return what a run costs on spot machines; of plans on these, what it costs on demand."""
    if not _is_all_spot(answer):
        return [Column(heading="spot", cell=describe_spot, gives_way=5, shorter=(short_spot,))]
    if all(describe_on_demand(plan) == UNKNOWN for plan in answer.plans):
        return []
    return [
        Column(
            heading="on demand",
            cell=describe_on_demand,
            gives_way=5,
            shorter=(short_on_demand,),
        )
    ]


def _is_all_spot(answer: Estimate) -> bool:
    # Bought on the spot market, the price of a plan is that of the market already.
    return all(plan.offer.purchase == "spot" for plan in answer.plans)


def _risks(answer: Estimate) -> list[Column]:
    """Return the column of what may go wrong, where a plan has such a mark."""
    max_oom = 1.0 if answer.question is None else answer.question.limits.max_oom
    if not any(_risk(plan, max_oom) for plan in answer.plans):
        return []
    return [
        Column(
            heading="risk",
            cell=lambda plan: _risk(plan, max_oom),
            shorter=(lambda plan: _first_risk(plan, max_oom),),
        )
    ]


def _narrow_place(answer: Estimate) -> Callable[[Plan], str]:
    """Return the shortest form of what is rented that still tells the rows from each other."""
    return short_place_region_first if need_regions(answer.plans) else short_place_anywhere


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


@dataclass(frozen=True, kw_only=True)
class PlanTable:
    """Columns of one width for every block of plans; what has no room is left to `show`."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]

    @classmethod
    def of(cls, answer: Estimate, width: int) -> PlanTable:
        """Return the table for all plans of an answer, as full as the width allows."""
        columns: list[Column] = []
        widths: list[int] = []
        for columns in _ever_narrower(plan_columns(answer)):
            widths = _widths(columns, answer.plans, width)
            if total_width(widths) <= width:
                break
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
        short = [cut(cell, width) for cell, width in zip(cells, self.widths, strict=True)]
        found = padded(short, self.widths, [column.align for column in self.columns])
        for column, cell in zip(self.columns, found, strict=True):
            line.append(GAP if line else "")
            line.append(cell, style="dim" if column.is_dim else "")
        line.rstrip()
        return line


def _ever_narrower(columns: list[Column]) -> Iterator[list[Column]]:
    """Yield the columns, then ever narrower ones.

    First those leave that are for experts, then words get shorter, the region leaves, what is
    rented is cut, and at last other columns leave.
    """
    leaving = sorted((c.gives_way for c in columns if c.gives_way), reverse=True)
    yield _uncut(columns)
    while leaving and leaving[-1] <= EXTRA:
        columns = _without(columns, leaving.pop())
        yield _uncut(columns)
    for tried in range(max(len(one.shorter) for one in columns)):
        columns = [_shortened(one, tried) for one in columns]
        yield _uncut(columns)
    yield columns
    while leaving:
        columns = _without(columns, leaving.pop())
        yield columns


def _uncut(columns: Iterable[Column]) -> list[Column]:
    return [replace(one, cut_to=None) for one in columns]


def _without(columns: Iterable[Column], gives_way: int) -> list[Column]:
    return [one for one in columns if one.gives_way != gives_way]


def _shortened(column: Column, tried: int) -> Column:
    """Return a column with the shorter cells that are tried after so many others."""
    return column if tried >= len(column.shorter) else replace(column, cell=column.shorter[tried])


def _widths(columns: Sequence[Column], plans: Iterable[Plan], width: int) -> list[int]:
    """Return the width of each column; one that may be cut is, as far as that is of use."""
    headings = [column.heading for column in columns]
    cells = [[column.cell(plan) for column in columns] for plan in plans]
    widths = column_widths([headings, *cells])
    over = total_width(widths) - width
    for i, column in enumerate(columns):
        if over > 0 and column.cut_to is not None:
            widths[i] = max(min(widths[i], column.cut_to), widths[i] - over)
    return widths


def has_gaps(plans: Sequence[Plan]) -> bool:
    """Return whether rows between these plans are left out."""
    positions = {plan.position for plan in plans}
    return any(_follows_a_gap(plan, positions) for plan in plans)


def _follows_a_gap(plan: Plan, positions: Collection[int]) -> bool:
    return plan.position > 1 and plan.position - 1 not in positions


def _position(plan: Plan, positions: Collection[int]) -> str:
    if _follows_a_gap(plan, positions):
        return f"{LEFT_OUT}{plan.position}"
    return f"{TIE if plan.tie_with_previous else ''}{plan.position}"


def _layout(plan: Plan) -> str:
    return plan.string


def _risk(plan: Plan, max_oom: float) -> str:
    found = []
    if plan.p_oom is not None and plan.p_oom > max_oom:
        found.append(_over(plan.p_oom, max_oom))
    return ", ".join([*found, *marks_of(plan)])


def marks_of(plan: Plan) -> list[str]:
    """Return what else than memory is against a plan, a word each: "quota", "port" …."""
    found = ["quota"] if plan.usually_reserved else []
    found += ["torch"] if plan.needs_build in ("other", "older") else []
    found += ["port"] if plan.needs_port else []
    found += [plan.frozen_precision] if plan.frozen_precision == "nf4" else []
    found += ["not run"] if is_marked_not_run(plan) else []
    return found


def is_marked_not_run(plan: Plan) -> bool:
    """Return whether a mark says that gpuplan does not run a plan; "port" and "nf4" say it too."""
    return plan.runnable is False and not plan.needs_port and plan.frozen_precision != "nf4"


def _first_risk(plan: Plan, max_oom: float) -> str:
    """Return the first word of a plan's risk; `show` has them all."""
    first, *others = _risk(plan, max_oom).split(", ")
    return f"{first}, …" if others else first


def _over(chance: float, limit: float) -> str:
    """Return a chance that is over a limit, with a decimal where it would read as the limit."""
    text = format_share(chance)
    return f"{math.ceil(chance * 1000) / 10:g} %" if text == format_share(limit) else text


def _step_time(plan: Plan) -> str:
    time = plan.step_time_s
    return f"{format_seconds(time.value)} {format_spread(time.value, time.low, time.high)}"


def _usd_per_hour(plan: Plan) -> str:
    return format_price(plan.usd_per_hour)


def _spot_per_hour(plan: Plan) -> str:
    spot = plan.offer.spot_usd_per_hour
    return unknown_spot(plan) if spot is None else format_price(spot * plan.nodes)


def rate_cell(plan: Plan) -> str:
    """Return samples or tokens a second, without the unit."""
    return format_count(plan.samples_per_s if plan.tokens_per_s is None else plan.tokens_per_s)
