"""What remains of a run on this machine, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from ....catalog.text.quantity import UNKNOWN, format_count, format_gib, format_seconds
from ....launcher.local.run_folder import shown_path
from ....launcher.local.run_request import RunResult

LABEL_WIDTH = 13


def render_result(result: RunResult) -> list[Text]:
    """Return the summary of a run, as lines."""
    return [Text(_title(result), style="bold"), *_lines(result), *_next(result)]


def _title(result: RunResult) -> str:
    record = result.record
    steps, asked = record.get("steps", 0), result.steps
    if not result.began:
        return f"Nothing to do: the run is at step {steps:,} of {asked:,} already."
    what = "Stopped at" if result.stopped_by is not None else "Ended at"
    if record.get("data_ended"):
        what = "The data ended at"
    return (
        f"{what} step {steps:,} of {asked:,} · {record.get('model_name')} on"
        f" {record.get('accelerators')} × {record.get('accelerator')}"  # noqa: RUF001
    )


def _lines(result: RunResult) -> Iterator[Text]:
    record = result.record
    measured = record.get("measured") or {}
    step_s = measured.get("step_time_s")
    if result.began:
        yield _line("step time", _step_time(result, step_s))
        yield _line(*_rate(result, step_s))
        loss = record.get("last_loss")
        yield _line("loss", UNKNOWN if loss is None else f"{loss:.4g}")
        yield _line("peak memory", _memory(record))
        usd = record.get("usd")
        if usd is not None:
            yield _line("cost", f"${usd:,.2f}")
    yield _line("record", shown_path(result.folder / "record.json"))
    if result.checkpoint is not None:
        yield _line("checkpoint", shown_path(result.checkpoint))


def _step_time(result: RunResult, step_s: float | None) -> str:
    """Return "412 ms, median (predicted 400 ms, 374 ms to 451 ms)"."""
    text = f"{UNKNOWN} (too few steps)" if step_s is None else f"{format_seconds(step_s)}, median"
    if result.plan is None:
        return text
    step = result.plan.step_time_s
    interval = f"{format_seconds(step.low)} to {format_seconds(step.high)}"
    return f"{text} · predicted {format_seconds(step.value)} ({interval})"


def _rate(result: RunResult, step_s: float | None) -> tuple[str, str]:
    tokens = result.tokens_per_sample
    name = "samples/s" if tokens is None else "tokens/s"
    batch = result.record.get("global_batch")
    if step_s is None or batch is None:
        return name, UNKNOWN
    return name, format_count(batch * (tokens or 1) / step_s)


def _memory(record: dict) -> str:
    reserved = record.get("measured_peak_reserved_bytes")
    allocated = record.get("measured_peak_allocated_bytes")
    if reserved is None or allocated is None:
        return f"{UNKNOWN} (not measured on a processor)"
    return f"{format_gib(reserved)} reserved, {format_gib(allocated)} allocated"


def _next(result: RunResult) -> Iterator[Text]:
    if result.stopped_by is not None:
        yield Text(f"Continue: the same command with --out-dir {shown_path(result.folder)}")
    elif not result.began:
        yield Text("Next: give more --steps to go on, or --resume never to begin anew")
    else:
        yield Text(f"Next: gpuplan actuals {shown_path(result.folder)}")


def _line(label: str, text: str) -> Text:
    return Text(f"  {label:<{LABEL_WIDTH}}{text}")
