"""What real steps took, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from ...catalog.text.quantity import DASH, format_bytes, format_count, format_part, format_seconds
from ...profiles.measured import (
    Conditions,
    InputPipeline,
    LargestMicroBatch,
    MeasuredProfile,
    Measurement,
    StepMemory,
)
from .text.columns import aligned, column_widths

LABEL_WIDTH = 13
BAR_WIDTH = 40
NOT_WAITING_SHARE = 0.005


def render_measured(profile: MeasuredProfile) -> list[Text]:
    """Return the lines of `gpuplan profile --measure`."""
    found = profile.measured
    lines = [*_head(profile), *_step(found), Text(), *_kernels(found)]
    if found.input is not None:
        lines += [Text(), *_input(found.input)]
    if found.largest_micro_batch is not None:
        lines += [Text(), _largest(found.largest_micro_batch)]
    notes = [Text(f"Note: {note}", "dim") for note in found.notes]
    return [*lines, Text(), *notes] if notes else lines


def _head(profile: MeasuredProfile) -> Iterable[Text]:
    found = profile.measured
    params = " ".join(f"{key}={value}" for key, value in profile.params.items())
    yield Text.assemble((profile.name, "bold"), f" {params}" if params else "")
    recompute = f" · recompute {found.recompute}" if found.recompute != "none" else ""
    setup = f"micro-batch {found.micro_batch} · {found.precision}{recompute}"
    yield _labelled("setup", f"{setup} · torch {found.versions.get('torch', 'unknown')}")
    cores = f" · {found.device.cores} cores" if found.device.cores else ""
    yield _labelled("device", f"{found.device.name}{cores}")


def _step(found: Measurement) -> Iterable[Text]:
    time = found.step_time
    spread = f"{format_seconds(time.p10_s)} {DASH} {format_seconds(time.p90_s)}"
    yield _labelled(
        "step",
        f"{format_seconds(time.median_s)}, the median of {time.steps} · 80 % of them {spread}",
    )
    if time.median_s > 0:
        speed = format_count(found.micro_batch / time.median_s)
        yield _labelled("speed", f"{speed} samples/s")
    yield _labelled("memory", _memory(found.memory))
    yield from _conditions(found.conditions)


def _memory(memory: StepMemory) -> str:
    if memory.peak_allocated_bytes is not None:
        text = f"peak {format_bytes(memory.peak_allocated_bytes)} allocated"
        if memory.peak_reserved_bytes is not None:
            text += f" · {format_bytes(memory.peak_reserved_bytes)} reserved"
        return text
    if memory.process_peak_bytes is not None:
        return f"peak {format_bytes(memory.process_peak_bytes)} of the whole process"
    return "unknown"


def _conditions(conditions: Conditions) -> Iterable[Text]:
    yield _labelled("throttled", _told(conditions.throttled))
    yield _labelled("contention", _told(conditions.contention))
    clock = conditions.clock_mhz
    of = f" of {conditions.max_clock_mhz:.0f}" if conditions.max_clock_mhz else ""
    parts = [
        f"{clock:.0f}{of} MHz" if clock is not None else "",
        f"{conditions.temperature_c:.0f} °C" if conditions.temperature_c is not None else "",
        f"{conditions.power_w:.0f} W" if conditions.power_w is not None else "",
    ]
    if any(parts):
        yield _labelled("clocks", " · ".join(part for part in parts if part))


def _told(reasons: Sequence[str] | None) -> str:
    if reasons is None:
        return "unknown"
    return "; ".join(reasons) if reasons else "none"


def _kernels(found: Measurement) -> Iterable[Text]:
    yield Text("Time of one step", "bold")
    rows = [(kernel.kind, kernel.seconds) for kernel in found.kernels]
    rows.append(("host, waiting", found.other_s))
    whole_s = sum(seconds for _, seconds in rows) or 1.0
    for name, seconds in rows:
        share = seconds / whole_s
        yield Text.assemble(
            f"  {name:<{LABEL_WIDTH}}{format_seconds(seconds):>9}  ",
            (f"{format_part(share):>5}", "dim"),
            "  ",
            ("█" * round(share * BAR_WIDTH), "cyan"),
        )


def _input(found: InputPipeline) -> Iterable[Text]:
    yield Text("Input pipeline", "bold")
    rows = [("workers", "samples/s")]
    rows += [(str(one.workers), format_count(one.samples_per_s)) for one in found.speeds]
    widths = column_widths(rows)
    for place, row in enumerate(rows):
        yield Text(f"  {aligned(row, widths, ('right', 'right'))}", "dim" if not place else "")
    waiting = found.waiting_share
    verdict = "keeps up with these steps"
    if waiting > NOT_WAITING_SHARE:
        verdict = f"at best the step waits for it {format_part(waiting)} of the time"
    per_core = format_count(found.samples_per_s_per_core)
    yield Text(f"  {per_core} samples/s per core · {verdict}")


def _largest(found: LargestMicroBatch) -> Text:
    text = f"{found.samples:,}" if found.samples else "none: a single sample ran out of memory"
    if found.samples and found.fails_at is not None:
        text += f" ({found.fails_at:,} ran out of memory)"
    text += f" ({found.note})" if found.note else ""
    return Text.assemble(("Largest micro-batch", "bold"), f"  {text}")


def _labelled(label: str, text: str) -> Text:
    return Text.assemble(f"  {label:<{LABEL_WIDTH}}{text}")
