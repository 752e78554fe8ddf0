"""An Estimate as text for a terminal: the question, what to rent and why, then a row a plan."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from ....catalog.text.quantity import UNKNOWN
from ....catalog.types import port_of
from ....planner.plan.answer.answer_parts import Recommended
from ....planner.plan.answer.estimate import Estimate
from ....planner.plan.plan import Plan
from ..text.columns import SEPARATOR, packed
from ..text.energy import CARBON_HEADING, CARBON_MARK, carbon_cell
from ..text.notes import joined_notes
from ..text.wording import (
    REJECTIONS,
    describe_compile_gain,
    describe_cost,
    describe_rejected,
    per_million,
    spot_marks,
)
from .next_step import next_step
from .plan_table import (
    LEFT_OUT,
    TIE,
    USE,
    PlanTable,
    has_gaps,
    is_marked_not_run,
    rate_cell,
    split_blocks,
)
from .short_cells import short_devices, short_place

BEYOND_THE_USER = ("indivisible", "no_price", "no_spec", "no_topology", "unsupported")
LABEL_WIDTH = 20
SCREEN_LINES = 24
"""What an answer of ten rows is to fit on."""
FEWEST_ROWS = 5
"""However long the notes are."""
BETWEEN_FACTS = "   "
BANDWIDTH_MARK = "bw: share of memory bandwidth, which bounds the step"
LOWER_BOUND_MARK = "≥: a price beside it is not known"
DATASET_MARK = "cost: with the data set where its price is known"
NOT_RUN = "gpuplan cannot run it (gpuplan show)"
NOT_COUNTED = "not in these sums: storage, egress, your own loop (gpuplan show)"


def render_estimate(
    answer: Estimate,
    *,
    model: str,
    width: int,
    most_lines: int | None = None,
    is_kept: bool = True,
) -> list[Text]:
    """Return the default view of an estimate, as lines.

    Args:
        answer: The estimate.
        model: The model as it was typed, for the command to type next.
        width: Columns of the terminal.
        most_lines: Lines for which there is room: then rows are left out that nothing else names.
            None: all rows are shown.
        is_kept: Whether its plans were stored, so that other commands find them.
    """
    asked = list(_asked(answer, width))
    if not answer.plans:
        return [*asked, Text(), *_no_plan(answer, model, width)]
    own, apart, cpus = split_blocks(answer.plans)
    first = list(_first_lines(answer, width))
    footer = _footer(answer, width, PlanTable.of(answer, width).headings, is_kept=is_kept)
    following = list(next_step(answer, model, width, is_kept=is_kept))
    rest = [*footer, *following]
    if most_lines is not None:
        beside = 1 + len(apart) + (1 + len(cpus) if cpus else 0)
        used = beside + sum(map(len, (asked, first, rest)))
        fewer = _with_room(answer, own, most_lines - used)
        # The mark of rows that are left out may take a line of its own.
        marked = answer.model_copy(update={"plans": (*fewer, *apart, *cpus)})
        headings = PlanTable.of(marked, width).headings
        longer = len(_footer(marked, width, headings, is_kept=is_kept)) - len(footer)
        own = _with_room(answer, own, most_lines - used - max(0, longer))
    shown = answer.model_copy(update={"plans": (*own, *apart, *cpus)})
    table = PlanTable.of(shown, width)
    # Rows that left may have been the only ones with a mark.
    rest = [*_footer(shown, width, table.headings, is_kept=is_kept), *following]
    rows = [table.header(), *table.rows(own), *table.rows(apart)]
    if cpus:
        rows += [Text("On host processors alone, for comparison:"), *table.rows(cpus)]
    return _spaced([asked, first, rows], rest, most_lines or SCREEN_LINES)


def _with_room(answer: Estimate, plans: list[Plan], room: int) -> list[Plan]:
    """Return as many plans as there is room for, but those that are named elsewhere, and five."""
    firsts = (answer.recommended, answer.recommended_on_large_clouds, answer.near_miss)
    named = {one.id for one in firsts if one is not None}
    named |= {one for _, one in answer.headlines if one is not None}
    shown = list(plans)
    for plan in reversed(plans):
        if len(shown) > max(room, FEWEST_ROWS) and plan.id not in named:
            shown.remove(plan)
    return shown


def _spaced(parts: list[list[Text]], rest: list[Text], screen_lines: int) -> list[Text]:
    """Return the parts with an empty line between them, as far as one screen has room for it."""
    used = sum(map(len, parts)) + len(rest)
    spare = len(parts) if used > screen_lines + len(parts) else max(0, screen_lines - used)
    lines: list[Text] = []
    for part in filter(None, parts):
        if lines and spare:
            lines.append(Text())
            spare -= 1
        lines += part
    return lines + rest


def note_lines(answer: Estimate) -> list[str]:
    """Return what is said beside the answer, on standard error: notes that no warning repeats."""
    notes = [note for note in answer.notes if note not in answer.warnings]
    return [f"Note: {note}." for note in joined_notes(notes)]


def room_beside(notes: Iterable[str], width: int) -> int:
    """Return how many lines of a screen these notes leave, on a terminal of this width."""
    return SCREEN_LINES - sum(math.ceil(cell_len(note) / width) for note in notes)


def marks(answer: Estimate, headings: Sequence[str]) -> list[str]:
    """Return what the marks of a table with these columns mean, as far as it has them."""
    found = []
    if any(plan.tie_with_previous for plan in answer.plans):
        found.append(f"{TIE} cannot be told from the row above")
    if has_gaps(answer.plans):
        found.append(f"{LEFT_OUT} rows above have no room")
    max_oom = 1.0 if answer.question is None else answer.question.limits.max_oom
    if any(plan.p_oom is not None and plan.p_oom > max_oom for plan in answer.plans):
        found.append("%: runs out of memory")
    if any(plan.is_lower_bound for plan in answer.plans):
        found.append(LOWER_BOUND_MARK)
    if answer.question is not None and answer.question.work.dataset_bytes is not None:
        found.append(DATASET_MARK)
    found += meanings(answer.plans)
    if any(heading.startswith("spot") for heading in headings):
        found += spot_marks(answer.plans)
    if any(heading.startswith(CARBON_HEADING) for heading in headings) and any(
        carbon_cell(plan) == UNKNOWN for plan in answer.plans
    ):
        found.append(CARBON_MARK)
    if USE in headings and any(plan.is_bandwidth_bound for plan in answer.plans):
        found.append(BANDWIDTH_MARK)
    return found


def meanings(plans: Sequence[Plan]) -> list[str]:
    """Return what the words of `marks_of` mean, as far as these plans have them."""
    found = []
    if any(plan.usually_reserved for plan in plans):
        found.append("quota: mostly by reservation")
    if any(plan.needs_build in ("other", "older") for plan in plans):
        found.append("torch: needs another build")
    if any(is_marked_not_run(plan) for plan in plans):
        found.append("not run: see show")
    if any(plan.frozen_precision == "nf4" for plan in plans):
        found.append("nf4: frozen base in 4 bits (QLoRA), by a script of your own")
    ports = {port_of(plan.offer.accelerator) or "XLA" for plan in plans if plan.needs_port}
    if ports:
        found.append(f"port: to {' or '.join(sorted(ports, reverse=True))} first")
    return found


def not_counted(plans: Iterable[Plan]) -> list[str]:
    """Return what the costs of plans leave out, as one item; nothing without an amount of work."""
    return [NOT_COUNTED] if any(plan.run for plan in plans) else []


def counts(answer: Estimate) -> str:
    """Return how many plans fit, and how many are not shown, by the reasons that users can act on.

    The two largest of these are named.
    """
    found: list[tuple[int, str]] = []
    if answer.hidden.above_cost:
        is_limited = answer.plans and answer.plans[0].amount_text is not None
        why = "train less than a fifth of the most" if is_limited else "above 5 × the best cost"  # noqa: RUF001
        found.append((answer.hidden.above_cost, why))
    if answer.hidden.above_time:
        found.append((answer.hidden.above_time, "take more than 60 days"))
    rejected = dict(answer.rejected)
    others = sum(rejected.pop(name) for name in BEYOND_THE_USER)
    found += [(count, REJECTIONS[name]) for name, count in rejected.items() if count]
    found.sort(reverse=True)
    others += sum(count for count, _ in found[2:])
    named = [f"{count:,} {why}" for count, why in found[:2]]
    named += [f"{others:,} other{'' if others == 1 else 's'}"] if others else []
    fit = f"{answer.feasible:,} plans fit"
    return f"{fit}; not shown: {', '.join(named)}" if named else fit


def _asked(answer: Estimate, width: int) -> Iterator[Text]:
    asked = packed(answer.asked_text, width=width, indent=0)
    limits = packed(answer.limits_text, width=width, indent=0)
    lines = [Text(line, style="bold") for line in asked]
    both = f"{asked[-1]}{SEPARATOR}{limits[0]}"
    if len(asked) > 1 and len(limits) == 1 and cell_len(both) <= width:
        lines[-1] = Text.assemble((asked[-1], "bold"), SEPARATOR, limits.pop())
    yield from lines
    yield from map(Text, limits)
    for warning in answer.warnings:
        for line in packed(f"Warning: {warning}.".split(), width=width, indent=0, separator=" "):
            yield Text(line, style="bold yellow")


def _first_lines(answer: Estimate, width: int) -> Iterator[Text]:
    """Yield the plan to rent with the reason, and where the others are that people look for.

    Without an amount of work nothing is recommended, and those are shown in full.
    """
    by_id = {plan.id: plan for plan in answer.plans}
    best, large = answer.recommended, answer.recommended_on_large_clouds
    named = {name: by_id[plan_id] for name, plan_id in answer.headlines if plan_id in by_id}
    if best is None or best.id not in by_id:
        names: dict[str, list[str]] = {}
        for name, plan in named.items():
            names.setdefault(plan.id, []).append(name)
        for plan_id, (first, *too) in names.items():
            also = f"{' and '.join(f'the {one}' for one in too)} too" if too else None
            yield from _named(first.capitalize(), by_id[plan_id], width, reason=also)
        yield from _nearest(answer, "Not recommended", width)
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
    yield from _with_compile(best, width)
    yield from _nearest(answer, "Nearest that runs", width)
    if large is not None and large.id in by_id:
        yield from _named_again("On aws, gcp, azure", by_id[large.id], width)


def _named_again(label: str, plan: Plan, width: int) -> Iterator[Text]:
    """Yield a plan of the table, on one line if a short form of it fits."""
    if plan.runnable is False:
        yield from _named(label, plan, width, reason=NOT_RUN)
        return
    lines = list(_named(label, plan, width))
    if len(lines) > 1 and plan.run is not None:
        facts = [plan.hours_text, plan.cost_text]
        facts += [] if plan.amount_text is None else [f"trains about {plan.amount_text}"]
        for place, devices in (
            (plan.place, plan.devices),
            (short_place(plan), short_devices(plan)),
        ):
            line = f"{label:<{LABEL_WIDTH}}{BETWEEN_FACTS.join([f'{place} ({devices})', *facts])}"
            if cell_len(line) <= width:
                lines = [_labelled(line, label)]
                break
    yield from lines


def _with_compile(best: Recommended, width: int) -> Iterator[Text]:
    """Yield what --compile would gain on the recommended plan, where that is much."""
    gain = best.with_compile
    if gain is None:
        return
    words = describe_compile_gain(gain).split()
    for line in packed(words, width=width, indent=LABEL_WIDTH, separator=" "):
        yield Text(line)


def _nearest(answer: Estimate, label: str, width: int) -> Iterator[Text]:
    """Yield the plan that comes nearest to a recommendation, and what to give for it."""
    if answer.near_miss is not None and answer.nearest is not None:
        yield from _named(label, answer.nearest, width, reason=answer.near_miss.reason)


def _named(label: str, plan: Plan, width: int, *, reason: str | None = None) -> Iterator[Text]:
    indent = LABEL_WIDTH
    places = [f"{plan.place} ({plan.devices})"]
    if indent + cell_len(places[0]) > width:
        places = [plan.place, f"({plan.devices})"]
    head = f"{label:<{indent}}"
    first, *more = packed(
        [*places, *_facts(plan)], width=width, indent=indent, separator=BETWEEN_FACTS
    )
    yield _labelled(f"{head}{first.strip()}", label)
    yield from (Text(rest) for rest in more)
    if reason is not None:
        for rest in packed(reason.split(), width=width, indent=indent, separator=" "):
            yield Text(rest)


def _labelled(line: str, label: str) -> Text:
    text = Text(line)
    text.stylize("bold green", 0, len(label))
    return text


def _facts(plan: Plan) -> list[str]:
    bound = [] if plan.bandwidth_text is None else [plan.bandwidth_text]
    if plan.amount_text is not None:
        trains = f"trains about {plan.amount_text}"
        return [trains, f"in {plan.hours_text}", describe_cost(plan), *bound]
    if plan.run is not None:
        return [plan.hours_text, describe_cost(plan), *bound]
    what, usd = per_million(plan)
    cost = "price unknown" if usd == UNKNOWN else f"{usd} per 1M {what}"
    return [f"{rate_cell(plan)} {what}/s", cost, *bound]


def _no_plan(answer: Estimate, model: str, width: int) -> Iterator[Text]:
    yield Text("No plan is feasible.", style="bold red")
    for line in packed((answer.nearest_miss or "").split(), width=width, indent=0, separator=" "):
        yield Text(line)
    for line in packed(describe_rejected(answer.rejected), width=width, indent=0, separator=", "):
        yield Text(line)
    limits = answer.rejected.past_deadline or answer.rejected.over_budget
    if answer.rejected.out_of_memory and not limits and answer.nearest_miss is None:
        yield Text(f"Next: gpuplan fits {shlex.quote(model)} --on H200   (what would make it fit)")


def _footer(answer: Estimate, width: int, headings: Sequence[str], *, is_kept: bool) -> list[Text]:
    items = [
        *marks(answer, headings),
        *not_counted(answer.plans),
    ]
    if not is_kept:
        items = [item.replace("gpuplan show", "--explain") for item in items]
    lines = packed(items, width=width, indent=0, separator="; ")
    lines += packed(counts(answer).split(), width=width, indent=0, separator=" ")
    return [Text(line, style="dim") for line in lines]
