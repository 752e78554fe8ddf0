"""One plan in full: the step and the memory as bars of parts, the cost, and every source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.text import Text

from ....catalog.text.money import format_money, format_price
from ....catalog.text.quantity import (
    format_bytes,
    format_count,
    format_gib,
    format_part,
    format_seconds,
    format_share,
)
from ....planner.plan.answer.estimate import Estimate
from ....planner.plan.plan import Basis, ChosenOffer, EstimatedMemory, MemoryBreakdown, Plan
from ..text.columns import aligned, column_widths, packed
from ..text.energy import energy_items, energy_origin
from ..text.money_items import data_items, money_items, own_items, paid_lines, priced, terms_items
from .ways_to_pay import deadline_lines

STEP_PARTS = {
    "compute": "matmul-like kernels",
    "memory_bound": "pointwise, norms, copies",
    "launch": "kernel launches",
    "optimizer": "optimizer step",
    "tensor_comm": "tensor-parallel traffic",
    "context_comm": "context-parallel traffic",
    "expert_comm": "expert traffic",
    "data_comm_exposed": "exposed data-parallel traffic",
    "host_comm_exposed": "exposed copies to and from the host",
    "pipeline_bubble": "pipeline bubble",
    "input_wait": "waiting for input",
}
MEMORY_PARTS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations",
    "temporary": "temporary",
    "framework": "framework and context",
}
BASIS_OF_TIME: dict[Basis, str] = {
    "measured": "measured: this model ran on this accelerator",
    "calibrated": "calibrated: the traced kernels on efficiency curves, corrected by measured runs",
    "analytic": "analytic: the traced kernels on efficiency curves; no run of it was measured",
}
SPOT_MOVES = "; it moves while a job runs, which no interval holds: no history of it is known"
BASIS_OF_MEMORY: dict[Basis, str] = {
    "measured": "measured: this model ran on this accelerator",
    "calibrated": "calibrated: the step's allocations replayed, corrected by measured runs",
    "analytic": "analytic: the step's allocations replayed by the allocator's rules",
}
OWN_LOOP = (
    "what a loop of your own does beside its steps (more evaluation, logging, data that arrives"
    " late) is in no sum: 82 published small jobs took 1.31 times what is expected of their steps,"
    " half of them 1.0 to 2.0, and 71 large trainings 1.09 times, half of them 0.9 to 1.4"
    " (docs/accuracy.md)"
)
"""The medians and quartiles of the whole trainings and the small jobs of docs/accuracy.md."""
BAR, TRACK, SLIVER = "█", "░", "▏"


def render_plan(
    plan: Plan, answer: Estimate | None, *, sources: Mapping[str, str], width: int
) -> list[Text]:
    """Return one plan in full, as lines.

    Args:
        plan: The plan.
        answer: The estimate it is from; None where that is not known.
        sources: What → where the catalogue has it from.
        width: Columns of the terminal.
    """
    return [
        *_heading(plan, answer, width),
        Text(),
        *_step(plan, width),
        Text(),
        *memory_bars(plan.peak_memory_bytes, plan.memory_breakdown_bytes, width),
        *_risk(plan),
        Text(),
        *_money(plan, width),
        Text(),
        *_energy(plan, width),
        Text(),
        *_sources(plan, answer, sources, width),
        *_notes(plan, width),
    ]


def memory_bars(peak: EstimatedMemory, breakdown: MemoryBreakdown, width: int) -> Iterator[Text]:
    """Yield the peak memory of one device as bars of its parts and of what is free."""
    interval = f"{format_gib(peak.low)} to {format_gib(peak.high)}"
    value = f"{format_gib(peak.value)} of {format_gib(peak.capacity)}"
    yield _section("Memory", value, interval)
    parts = parts_of(breakdown, MEMORY_PARTS)
    if peak.capacity > peak.value:
        parts["free"] = peak.capacity - peak.value
    whole = max(peak.capacity, peak.value)
    yield from _bars({name: (b, format_bytes(b)) for name, b in parts.items()}, whole, width)


def _heading(plan: Plan, answer: Estimate | None, width: int) -> Iterator[Text]:
    title = f"Plan {plan.position} · {plan.id} · {plan.devices}"
    yield Text(title, style="bold")
    for line in packed(setup_items(plan, answer), width=width, indent=0):
        yield Text(line)


def setup_items(plan: Plan, answer: Estimate | None) -> list[str]:
    """Return what is rented and how the step is run, in words."""
    batch = f"global batch {plan.global_batch:,} = {plan.micro_batch} × {plan.layout.data}"  # noqa: RUF001
    if plan.grad_accum > 1:
        batch += f" × {plan.grad_accum} accumulated"  # noqa: RUF001
    items = [
        plan.place,
        plan.string,
        plan.stack,
        plan.optimizer,
        batch,
    ]
    if answer is not None:
        work = answer.workload
        items.append(f"{work.name}, {work.parameters_text}")
    return items


def _step(plan: Plan, width: int) -> Iterator[Text]:
    time = plan.step_time_s
    interval = f"{format_seconds(time.low)} to {format_seconds(time.high)}"
    yield _section("Step", format_seconds(time.value), interval)
    parts = parts_of(plan.breakdown_s, STEP_PARTS)
    yield from _bars({name: (s, format_seconds(s)) for name, s in parts.items()}, time.value, width)
    for line in packed(speed_items(plan), width=width, indent=2):
        yield Text(line)


def speed_items(plan: Plan) -> list[str]:
    """Return samples and tokens a second, and the shares of what the device could do."""
    speed = [f"{format_count(plan.samples_per_s)} samples/s"]
    if plan.tokens_per_s is not None:
        speed.append(f"{format_count(plan.tokens_per_s)} tokens/s")
    if plan.bandwidth_text is not None:
        speed.append(f"bound by memory traffic: {plan.bandwidth_text}")
    elif plan.mfu is not None:
        speed.append(f"MFU {format_part(plan.mfu)}")
    differs = format_share(plan.hfu) != format_share(plan.mfu)
    if plan.bandwidth_text is None and plan.hfu is not None and differs:
        speed.append(f"HFU {format_part(plan.hfu)}")
    return speed


def _risk(plan: Plan) -> Iterator[Text]:
    if plan.p_oom is not None:
        yield Text(f"  {risk_text(plan.p_oom)}")


def risk_text(p_oom: float) -> str:
    """Return the chance of running out of memory as a sentence without its subject."""
    chance = "less than 0.1 %" if p_oom < 0.001 else f"{p_oom * 100:.1f} %"
    return f"runs out of memory with a chance of {chance}"


def _money(plan: Plan, width: int) -> Iterator[Text]:
    yield Text("Money", style="bold")
    for items in money_items(plan):
        yield from (Text(line) for line in packed(items, width=width, indent=2))
    for items in (terms_items(plan), own_items(plan)):
        yield from (Text(line) for line in packed(items, width=width, indent=2))
    yield from (Text(f"  {line}") for line in deadline_lines(plan))
    for line in paid_lines(plan):
        yield Text(f"  {line.name}: {priced(line)} = {format_money(line.usd)}", style="dim")
    for item in data_items(plan):
        yield from (Text(one) for one in packed([item], width=width, indent=2))


def _energy(plan: Plan, width: int) -> Iterator[Text]:
    name = "Energy"
    first, *more = packed(energy_items(plan), width=width, indent=len(name) + 2)
    yield Text.assemble((name, "bold"), f"  {first.strip()}")
    yield from (Text(line) for line in more)


def origins(plan: Plan, answer: Estimate | None, sources: Mapping[str, str]) -> dict[str, str]:
    """Return what a plan's numbers rest on -> in words, what that is."""
    offer = plan.offer
    dated = f", {_dated(offer)}" if offer.price_date else ""
    snapshot = f", snapshot of {answer.catalog.snapshot_date.isoformat()}" if answer else ""
    energy = {} if plan.energy is None else {"energy": energy_origin(plan.energy)}
    return {
        "step time": BASIS_OF_TIME[plan.step_time_s.basis],
        "memory": BASIS_OF_MEMORY[plan.peak_memory_bytes.basis],
        "price": f"{offer.purchase}, basis {offer.price_basis}{dated}{snapshot}{_terms(plan)}",
        **_stops_origin(plan),
        **({"own loop": OWN_LOOP} if plan.run else {}),
        **energy,
        **sources,
    }


def _stops_origin(plan: Plan) -> dict[str, str]:
    """Return what the expected time and the cost of data rest on."""
    found: dict[str, str] = {}
    stops = plan.stops
    if stops is not None:
        rate = f"{stops.per_hour:.2g} an hour, 80 % {stops.per_hour_low:.2g}"  # noqa: RUF001
        found["stops"] = f"{rate} to {stops.per_hour_high:.2g}: {'; '.join(stops.sources)}"
    if plan.whole_job is not None:
        priced = {line.name: line.source for line in plan.whole_job.data_lines if line.source}
        if priced:
            found["data"] = "; ".join(f"{name}: {source}" for name, source in priced.items())
    return found


def _terms(plan: Plan) -> str:
    """Return what the user's pricebook changes of a price, behind its basis, and what moves it."""
    offer, terms = plan.offer, ""
    if offer.discount_percent is not None:
        listed = format_price(offer.list_usd_per_hour)
        terms += f", {offer.discount_percent:g} % off {listed} by your pricebook"
    if offer.tax_percent:
        terms += f", before {offer.tax_percent:g} % tax"
    moves = None if plan.whole_job is None else plan.whole_job.spot_price
    if offer.purchase != "spot":
        return terms
    if moves is None:
        return terms + SPOT_MOVES
    return (
        f"{terms}; it moves while a job runs, 80 % ×{moves.low:.2f} to {moves.high:.2f} by your"  # noqa: RUF001
        f" snapshots' prices of {moves.prices} days: the interval of the cost holds it"
    )


def notes_of(plan: Plan) -> tuple[str, ...]:
    """Return what a reader should know of a plan, and why it cannot be run where that is so."""
    if plan.why_not_runnable is None:
        return plan.notes
    return (*plan.notes, f"`gpuplan run` cannot carry it out. {plan.why_not_runnable}")


def _sources(
    plan: Plan, answer: Estimate | None, sources: Mapping[str, str], width: int
) -> Iterator[Text]:
    yield Text("Where the numbers come from", style="bold")
    rows = origins(plan, answer, sources)
    widest = max(map(len, rows))
    for name, text in rows.items():
        first, *more = packed(text.split(), width=width, indent=widest + 4, separator=" ")
        yield Text(f"  {name:<{widest}}{first[widest + 2 :]}")
        yield from (Text(line) for line in more)


def _dated(offer: ChosenOffer) -> str:
    """Return the date of a price as exactly as its source says it."""
    assert offer.price_date is not None
    forms = {"year": "%Y", "month": "%Y-%m"}
    return offer.price_date.strftime(forms.get(offer.price_date_precision or "day", "%Y-%m-%d"))


def _notes(plan: Plan, width: int) -> Iterator[Text]:
    notes = notes_of(plan)
    if not notes:
        return
    yield Text()
    yield Text("Notes", style="bold")
    for note in notes:
        first, *more = packed(note.split(), width=width, indent=4, separator=" ")
        yield Text(f"  - {first.strip()}")
        yield from (Text(line) for line in more)


def _section(name: str, value: str, interval: str) -> Text:
    return Text.assemble((name, "bold"), f"  {value}", (f"   80 %: {interval}", "dim"))


def parts_of(breakdown: object, names: Mapping[str, str]) -> dict[str, float]:
    """Return the parts that are there, by the name that is shown."""
    values = {text: getattr(breakdown, name) for name, text in names.items()}
    return {text: value for text, value in values.items() if value}


def _bars(parts: Mapping[str, tuple[float, str]], whole: float, width: int) -> Iterator[Text]:
    """Yield one bar for each part, as long as its share of the whole."""
    labels = [(name, shown, format_part(size / whole)) for name, (size, shown) in parts.items()]
    widths = column_widths(labels)
    room = max(10, min(50, width - sum(widths) - 8))
    for cells, (name, (size, _)) in zip(labels, parts.items(), strict=True):
        filled = round(size / whole * room)
        bar = (TRACK if name == "free" else BAR) * filled or SLIVER
        text = aligned(cells, widths, ("left", "right", "right"))
        yield Text.assemble(f"  {text}  ", (bar, "dim" if name == "free" else "cyan"))
