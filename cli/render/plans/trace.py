"""The predicted step in the Trace Event Format, which Perfetto and chrome://tracing open.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ....planner.plan.plan import Plan

if TYPE_CHECKING:
    from ....planner.predict.timeline import Span

PROCESS = 1
MICROSECONDS = 1e6


def render_trace(spans: Iterable[Span], plan: Plan) -> str:
    """Return the spans of one predicted step as trace JSON, one track a thread."""
    events: list[dict[str, Any]] = []
    threads: dict[str, int] = {}
    for span in spans:
        thread = threads.setdefault(span.track, len(threads) + 1)
        events.append(
            {
                "ph": "X",
                "name": span.name,
                "cat": span.track,
                "pid": PROCESS,
                "tid": thread,
                "ts": span.start_s * MICROSECONDS,
                "dur": span.duration_s * MICROSECONDS,
                "args": span.facts,
            }
        )
    names = [_named("process_name", 0, f"predicted: {plan.string} on {plan.offer.accelerator}")]
    for track, thread in threads.items():
        names.append(_named("thread_name", thread, track))
    trace = {
        "traceEvents": names + events,
        "displayTimeUnit": "ms",
        "otherData": {"plan": plan.id, "predicted": True, "step_time_s": plan.step_time_s.value},
    }
    return json.dumps(trace, default=str) + "\n"


def _named(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": PROCESS, "tid": thread, "args": {"name": name}}
