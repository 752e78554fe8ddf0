"""The predicted step as a timeline: segments on the device, collectives, the optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ...catalog.errors import UsageError
from ...catalog.types import Accelerator
from ...profiles.curves.choice import USUAL_CURVES, CurveChoice
from ...profiles.profile import Profile, StepTrace
from ..plan.plan import Plan
from ..plan.setup import Setup
from ..software.stack import casts_layers
from ..step.kernels.kernel_totals import SegmentTimes
from .kept.model_cache import ModelCache
from .setup import stack_facts


@dataclass(frozen=True, kw_only=True)
class Span:
    """One bar of the timeline, seconds from the start of the step."""

    name: str
    track: str
    """"compute", "communication" or "optimizer"."""
    start_s: float
    duration_s: float
    facts: dict[str, object] = field(default_factory=dict)


def timeline(
    profile: Profile,
    plan: Plan,
    accelerator: Accelerator,
    *,
    curve_choice: CurveChoice = USUAL_CURVES,
) -> list[Span]:
    """Return the spans of one predicted step, which end at the plan's step time.

    Segments run in the order of the trace, once per accumulated micro-batch. Time that the
    prediction adds without a place of its own (exposed communication) stands where it is waited
    for: at the end of the backward passes.

    Raises:
        UsageError: the layout splits the model, so that no one rank stands for all.
    """
    if not plan.layout.is_data_parallel_only:
        raise UsageError(
            f"The timeline of {plan.layout} cannot be drawn: its ranks run different parts.",
            fix="ask for a data-parallel layout, or leave --trace out.",
        )
    if plan.recompute_layers is not None:
        raise UsageError(
            "The timeline of a plan that recomputes only some of the layers cannot be drawn.",
            fix="ask for --recompute full or none, or leave --trace out.",
        )
    setup = Setup(
        layout=plan.layout,
        precision=plan.precision,
        micro_batch=plan.micro_batch,
        grad_accum=plan.grad_accum,
        recompute=plan.recompute,
        stack=plan.stack,
        compile=plan.compile,
        autocast=casts_layers(plan.stack, plan.layout, plan.offloaded),
        frozen_precision=plan.frozen_precision,
    )
    cache = ModelCache(profile, curve_choice=curve_choice).with_frozen(plan.frozen_precision)
    (times,) = cache.times(
        accelerator,
        plan.precision,
        (plan.recompute,),
        stack=stack_facts(setup, cache.constants),
        micro_batches=np.array([plan.micro_batch]),
    )
    numerics = cache.numerics(plan.precision, autocast=setup.autocast)
    trace = cache.steps.trace_in(numerics, plan.recompute)
    spans = [*_segments(trace, times, grad_accum=plan.grad_accum)]
    now = spans[-1].start_s + spans[-1].duration_s if spans else 0.0
    for name, track, duration in _rest(plan, now):
        if duration > 0:
            spans.append(Span(name=name, track=track, start_s=now, duration_s=duration))
            now += duration
    return spans


def _segments(trace: StepTrace, times: SegmentTimes, *, grad_accum: int) -> Iterator[Span]:
    """Yield the forward and backward passes of every micro-batch, one after the other."""
    now = 0.0
    for micro_batch in range(grad_accum):
        for index in trace.schedule:
            segment = trace.segments[index]
            if segment.phase == "optimizer":
                continue
            duration = float(times.total_s[index, 0])
            yield Span(
                name=segment.name,
                track="compute",
                start_s=now,
                duration_s=duration,
                facts={
                    "micro_batch": micro_batch,
                    "block": segment.block,
                    "compute_s": float(times.compute_s[index, 0]),
                    "memory_bound_s": float(times.memory_s[index, 0]),
                    "kernels": len(segment.kernels),
                },
            )
            now += duration


def _rest(plan: Plan, passes_s: float) -> tuple[tuple[str, str, float], ...]:
    """Return what follows the passes: names, tracks and seconds, up to the plan's step time."""
    parts = plan.breakdown_s
    return (
        ("exposed data communication", "communication", parts.data_comm_exposed),
        ("exposed host copies", "communication", parts.host_comm_exposed),
        ("optimizer step", "optimizer", parts.optimizer),
        (
            "loop overhead",
            "compute",
            plan.step_time_s.value
            - passes_s
            - parts.optimizer
            - parts.data_comm_exposed
            - parts.host_comm_exposed,
        ),
    )
