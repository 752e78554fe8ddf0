"""What a launch is going to cost, what stops it and where it lands, on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from rich.text import Text

from ....catalog.text.quantity import UNKNOWN, format_bytes, format_count
from ....catalog.units import SECONDS_PER_HOUR
from ....launcher.prepare.prepared import Prepared
from ....launcher.skypilot.placement import Place
from ....launcher.upload import Upload
from ....planner.plan.plan import CostLine, Plan

LABEL_WIDTH = 20
TIME_WIDTH = 15
"""Of the times of the cost lines; the longest name of one takes its room before it."""
MINUTE_S = 60
FILES_WIDTH = 78
"""Of the largest files that are sent, behind the label: a line of 100."""
PATH_WIDTH = 48


def render_launch(prepared: Prepared) -> list[Text]:
    """Return the worst case, the money, the places and what ends the run, as lines."""
    plan = prepared.plan
    title = f"Plan {plan.id}: {plan.devices} · {plan.place}"
    return [
        *_trained(prepared),
        Text(title, style="bold"),
        *([] if prepared.term is None else [_line("term to be signed", prepared.term)]),
        *_sums(prepared),
        *(_cost_line(line, plan.nodes) for line in prepared.cost.lines),
        *_places(prepared),
        *([] if prepared.interfaces is None else [_line("network", prepared.interfaces.text)]),
        *(_line("ends" if not index else "", text) for index, text in enumerate(_ends(prepared))),
        *_sent(prepared),
        _line("results", _results(prepared)),
        *_project(prepared),
        *(Text(f"Note: {note}.") for note in prepared.notes),
    ]


def _trained(prepared: Prepared) -> Iterator[Text]:
    """Yield what is trained, how much and on what, where gpuplan's own runner trains it."""
    job, plan = prepared.job, prepared.plan
    if job is None:
        return
    facts = [
        prepared.model,
        None if prepared.parameters is None else f"{format_count(prepared.parameters)} parameters",
        _work(plan, job.steps),
        plan.precision,
        plan.frozen_precision and f"frozen parameters in {plan.frozen_precision}",
    ]
    yield Text(", ".join(fact for fact in facts if fact), style="bold")
    yield Text(f"data: {prepared.data}")


def _work(plan: Plan, steps: int) -> str:
    """Return how much is trained: steps of samples, with their tokens where the model has any."""
    text = f"{steps:,} steps of {plan.global_batch:,} samples"
    if plan.tokens_per_s is None:
        return text
    tokens = steps * plan.global_batch * plan.tokens_per_s / plan.samples_per_s
    return f"{format_count(tokens)} tokens in {text}"


def _sums(prepared: Prepared) -> Iterator[Text]:
    cost, guard = prepared.cost, prepared.request.guard
    rate = f"{_usd(cost.usd_per_hour)} an hour"
    if cost.usd_worst is None or cost.hours_expected is None or cost.hours_worst is None:
        bound = (
            ""
            if guard.max_cost_usd is None
            else f"; its guard ends it before {_usd(guard.max_cost_usd)}"
        )
        yield _line("at worst", f"{UNKNOWN} (how long the job runs is not known){bound}")
        yield _line("per hour", rate)
        return
    worst = (
        f"{_span(cost.hours_worst * SECONDS_PER_HOUR):>{TIME_WIDTH}}  {_usd(cost.usd_worst):>12}"
    )
    why = "slowest start, top of the 80 % interval, idle end"
    if prepared.moves is not None:
        why += ", highest spot price seen"
    if prepared.term is not None:
        why += ", all of the term"
    if guard.max_cost_usd is not None and cost.usd_worst > guard.max_cost_usd:
        why += f"; its guard ends it before {_usd(guard.max_cost_usd)}"
    yield _line("at worst", f"{worst}  {why}")
    expected = f"{_span(cost.hours_expected * SECONDS_PER_HOUR):>{TIME_WIDTH}}"
    yield _line("expected", f"{expected}  {_usd(cost.usd_expected):>12}  {rate}")


def _cost_line(line: CostLine, nodes: int) -> Text:
    seconds = line.quantity / nodes * SECONDS_PER_HOUR
    # A long name takes the room before the figure, so that figures stay below each other.
    label = f"  {line.name} "
    span = f"{_span(seconds):>{LABEL_WIDTH + TIME_WIDTH - len(label)}}"
    return Text(f"  {label}{span}  {_usd(line.usd):>12}")


def _project(prepared: Prepared) -> Iterator[Text]:
    """Yield the project whose file limits the launch, and how each limit stands."""
    file = prepared.project_file
    if file is None:
        return
    limited = "" if prepared.limits else "; none of its limits is for this launch"
    yield _line("project", f"{prepared.project.name}, as {file.path} says{limited}")
    for one in prepared.limits:
        before = one.spent_usd + one.open_usd
        total = f"{_usd(one.total_usd)} of at most {_usd(one.limit_usd)}"
        of_others = f", {_usd(before)} without this launch" if one.name != "run" else ""
        yield _line("", f"{one.name}: {total}{of_others} ({one.place})")
    for text in prepared.warnings:
        yield Text(f"Warning: {text}", style="bold")


def _named(places: Iterable[Place]) -> str:
    return ", ".join(f"{place.infra} ({_usd(place.usd_per_hour)} a node)" for place in places)


def _places(prepared: Prepared) -> Iterator[Text]:
    how = "spot" if prepared.request.buys_spot(prepared.plan) else "on-demand"
    yield _line("tried in order", f"{how}, {_named(prepared.places)}")
    if prepared.fallback:
        yield _line("", f"then on-demand, {_named(prepared.fallback)}")
        if prepared.task.then is not None:
            yield _line("", "once there is no time to lose spot machines before the deadline")


def _ends(prepared: Prepared) -> Iterator[str]:
    """Yield what ends the run, a line each."""
    guard, orders = prepared.request.guard, prepared.orders
    if guard.smoke:
        yield "after the steps that tell what the whole run would cost"
    elif prepared.job is not None:
        yield f"after its last step, {prepared.job.steps:,}"
    limits = []
    held_usd = orders.max_cost_usd
    if guard.max_cost_usd is not None and held_usd == float(guard.max_cost_usd):
        limits.append(f"before it costs {_usd(guard.max_cost_usd)}, {guard.max_cost_source}")
    elif held_usd is not None:
        usd = _usd(Decimal(str(held_usd)))
        limits.append(f"before it costs {usd}, its worst case, as limits count it")
    deadline = prepared.request.deadline
    if deadline is not None:
        local = deadline.astimezone()
        limits.append(f"at {local:%Y-%m-%d %H:%M}, {prepared.request.deadline_source}")
    if guard.max_hours is not None:
        limits.append(f"before {guard.max_hours:g} hours")
    if guard.min_gpu_utilization is not None:
        limits.append(
            f"below {guard.min_gpu_utilization:.0%} use of the GPUs for {_span(guard.idle_for_s)}"
        )
    if orders.heartbeat_timeout_s is not None:
        limits.append(f"{_span(orders.heartbeat_timeout_s)} without a step")
    if prepared.job is not None:
        limits.append("a loss that is no number")
    if limits:
        yield "; ".join(limits)
    projection = orders.projection
    if projection is not None and projection.high_usd is not None and not guard.smoke:
        high = f"${projection.high_usd:,.2f}"
        yield {
            "continue": f"when its first steps say that it costs more than {high}: goes on",
            "stop": f"when its first steps say that it costs more than {high}",
            "ask": f"when its first steps say that it costs more than {high}, until you say so",
        }[guard.on_projection]
    yield _gone(prepared)


def _gone(prepared: Prepared) -> str:
    """Return what ends the machines once the job has ended."""
    if prepared.idle_minutes is not None:
        after = _span(prepared.orders.tail_s)
        return f"then the machines go: at once, or {after} later if no command follows"
    return (
        "then this command ends the machines; if it does not run, NOTHING does: SkyPilot has no"
        f" autodown on {prepared.places[0].cloud}, and {_usd(prepared.cost.usd_per_hour)} an hour"
        " go on, whatever limit is set"
    )


def _sent(prepared: Prepared) -> Iterator[Text]:
    """Yield how much travels to every node, and what the most of it is."""
    upload = prepared.upload
    files = "1 file" if len(upload.files) == 1 else f"{len(upload.files):,} files"
    yield _line("sent to each node", f"{format_bytes(upload.size_bytes)}, {files} of {upload.root}")
    if upload.files:
        yield from (_line("", text) for text in _largest(upload))


def _largest(upload: Upload) -> Iterator[str]:
    """Yield the largest files, on lines that are no wider than the longest of the others."""
    line = "largest: "
    for number, one in enumerate(upload.largest):
        item = f"{_shortened(one.path)} {format_bytes(one.size_bytes)}"
        if number and len(line) + len(item) + 1 > FILES_WIDTH:
            yield line.rstrip()
            line = " " * len("largest: ")
        line += item + (", " if number + 1 < len(upload.largest) else "")
    yield line


def _shortened(path: str) -> str:
    """Return a path without the middle of it, where it is long.

    >>> _shortened("checkpoints/pretrained/llama/very/long/model-00001-of-00004.safetensors")
    'checkpoints/pretrai…l-00001-of-00004.safetensors'
    """
    if len(path) <= PATH_WIDTH:
        return path
    last = PATH_WIDTH * 3 // 5
    return f"{path[: PATH_WIDTH - last - 1]}…{path[-last:]}"


def _results(prepared: Prepared) -> str:
    request = prepared.request
    if request.fetch is not None:
        minutes = prepared.idle_minutes
        lost = (
            ""
            if minutes is None
            else f"; deleted with them {minutes} minutes after the job unless a command runs here"
            " until then (this machine must not sleep; --outputs keeps them)"
        )
        return f"{request.fetch}, brought before the machines go{lost}"
    place = request.shared or (None if request.outputs is None else request.outputs.source)
    return f"{place}/{prepared.task.out_dir.rpartition('/')[2]}"


def _span(seconds: float) -> str:
    if seconds < MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < SECONDS_PER_HOUR:
        return f"{seconds / MINUTE_S:.1f} min"
    return f"{seconds / SECONDS_PER_HOUR:,.1f} h"


def _usd(usd: Decimal | None) -> str:
    return UNKNOWN if usd is None else f"${usd:,.2f}"


def _line(label: str, text: str) -> Text:
    return Text(f"  {label:<{LABEL_WIDTH}}{text}")
