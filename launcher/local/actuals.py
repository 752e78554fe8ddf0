"""Predicted against measured, part by part of a step, of one run on this machine or any other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from ...catalog.errors import UsageError
from ...catalog.frozen import FrozenModel
from ...catalog.types import CPU_PREFIX
from ...planner.plan.plan import SCHEMA_VERSION, Breakdown, Plan
from ...planner.predict.interval import allocator_interval

Quantity = Literal["s", "bytes"]
OTHER_PARTS = ("optimizer", "input", "checkpoint")
"""What a run measures of a step beside its forward and backward pass."""
OTHER_BREAKDOWN = ("optimizer", "input_wait")


KERNEL_PARTS = {
    "compute": "kernels: matrix products",
    "memory_bound": "kernels: memory traffic",
    "optimizer": "kernels: optimizer",
    "communication_exposed": "kernels: collectives that nothing hides",
    "idle": "kernels: none, the device waits",
}
"""Parts of `kernels.json`, and what their rows are called."""


class ActualsRow(FrozenModel):
    """One thing that was predicted or measured; null is unknown."""

    name: str
    unit: Quantity
    predicted: float | None
    low: float | None = None
    high: float | None = None
    """Ends of the 80 % interval of the prediction; only the step and the peak have one."""
    measured: float | None
    error: float | None = None
    """Predicted ÷ measured - 1."""
    inside: bool | None = None
    """Whether what was measured lies in the interval."""


class Actuals(FrozenModel):
    """What a run took beside what its plan said."""

    schema_version: str = SCHEMA_VERSION
    run: str | None
    """Id of the run record."""
    model_name: str | None
    plan: str | None
    """Id of the plan; None where the run had none."""
    string: str | None
    accelerator: str | None
    """Where it ran, as the driver calls it."""
    accelerators: int | None
    planned_accelerator: str | None
    steps: int | None
    rows: tuple[ActualsRow, ...]
    notes: tuple[str, ...] = ()


def actuals(place: Path) -> Actuals:
    """Return predicted beside measured of a run.

    Args:
        place: the folder of the run, or its `record.json`; the plan is read from `job/plan.json`
            beside the record.

    Raises:
        UsageError: there is no run record, or the plan cannot be read.
    """
    path = place / "record.json" if place.is_dir() else place
    record = _record(path)
    profiled = _profiled(path.parent / "profile" / "kernels.json")
    plan = None if record.get("plan") is None else _plan(path.parent / "job" / "plan.json")
    if plan is not None and plan.id != record["plan"]:
        plan = None
    try:
        return compare(record, plan, profiled)
    except (AttributeError, TypeError, ValidationError):
        raise _no_record(path) from None


def compare(
    record: Mapping[str, Any], plan: Plan | None, profiled: Mapping[str, Any] | None = None
) -> Actuals:
    """Return what a record measured beside what a plan predicts.

    Args:
        record: of the run.
        plan: that it followed.
        profiled: `kernels.json` of its profiled steps; None where none were.
    """
    return Actuals(
        run=record.get("id"),
        model_name=record.get("model_name"),
        plan=None if plan is None else plan.id,
        string=None if plan is None else plan.string,
        accelerator=record.get("accelerator"),
        accelerators=record.get("accelerators"),
        planned_accelerator=None if plan is None else plan.offer.accelerator,
        steps=record.get("steps"),
        rows=(
            *_time_rows(record, plan),
            *_kernel_rows(profiled, plan),
            *_memory_rows(record, plan),
        ),
        notes=(*_notes(record, plan), *_profile_notes(profiled)),
    )


def _time_rows(record: Mapping[str, Any], plan: Plan | None) -> Iterator[ActualsRow]:
    parts: Mapping[str, float | None] = record.get("measured_parts_s") or {}
    breakdown = None if plan is None else plan.breakdown_s
    step = None if plan is None else plan.step_time_s
    yield _row(
        "step time",
        "s",
        predicted=None if step is None else step.value,
        interval=None if step is None else (step.low, step.high),
        measured=(record.get("measured") or {}).get("step_time_s"),
    )
    passes = [one for part, one in parts.items() if part not in OTHER_PARTS and one is not None]
    yield _row(
        "forward and backward",
        "s",
        predicted=None if breakdown is None else _forward_and_backward(breakdown),
        measured=sum(passes) if passes else None,
    )
    yield _row(
        "optimizer",
        "s",
        predicted=None if breakdown is None else breakdown.optimizer,
        measured=parts.get("optimizer"),
    )
    yield _row(
        "waiting for input",
        "s",
        predicted=None if breakdown is None else breakdown.input_wait,
        measured=parts.get("input"),
    )


def _kernel_rows(profiled: Mapping[str, Any] | None, plan: Plan | None) -> Iterator[ActualsRow]:
    """Yield the time of kernels in one profiled step beside the parts that the plan has of it."""
    if profiled is None:
        return
    parts: Mapping[str, float | None] = profiled["parts_s"]
    predicted = None if plan is None else kernel_parts(plan.breakdown_s)
    for part, words in KERNEL_PARTS.items():
        if parts.get(part) is None and profiled["device"] == "cpu":
            continue
        yield _row(
            words,
            "s",
            predicted=None if predicted is None else predicted[part],
            measured=parts.get(part),
        )


def kernel_parts(breakdown: Breakdown) -> dict[str, float]:
    """Return the predicted seconds of one step by what a profile of it can tell apart."""
    return {
        "compute": breakdown.compute,
        "memory_bound": breakdown.memory_bound,
        "optimizer": breakdown.optimizer,
        "communication_exposed": breakdown.tensor_comm
        + breakdown.context_comm
        + breakdown.expert_comm
        + breakdown.data_comm_exposed,
        "idle": breakdown.launch + breakdown.pipeline_bubble + (breakdown.input_wait or 0.0),
    }


def _memory_rows(record: Mapping[str, Any], plan: Plan | None) -> Iterator[ActualsRow]:
    predicted = interval = None
    if plan is not None:
        # What torch's allocator reserves: the contexts of the driver and NCCL are not in it.
        peak, framework = plan.peak_memory_bytes, plan.memory_breakdown_bytes.framework
        predicted = peak.value - framework
        interval = allocator_interval(peak, framework)
    yield _row(
        "peak memory, reserved",
        "bytes",
        predicted=predicted,
        interval=interval,
        measured=record.get("measured_peak_reserved_bytes"),
    )
    yield _row(
        "peak memory, allocated",
        "bytes",
        predicted=None,
        measured=record.get("measured_peak_allocated_bytes"),
    )


def _row(
    name: str,
    unit: Quantity,
    *,
    predicted: float | None,
    measured: float | None,
    interval: tuple[float, float] | None = None,
) -> ActualsRow:
    low, high = interval or (None, None)
    return ActualsRow(
        name=name,
        unit=unit,
        predicted=predicted,
        low=low,
        high=high,
        measured=measured,
        error=predicted / measured - 1 if predicted is not None and measured else None,
        inside=low <= measured <= high
        if low is not None and high is not None and measured is not None
        else None,
    )


def _forward_and_backward(breakdown: Breakdown) -> float:
    """Return the predicted seconds of all that a run measures between data and optimizer."""
    parts = breakdown.model_dump(exclude=set(OTHER_BREAKDOWN))
    return sum(seconds for seconds in parts.values() if seconds is not None)


def _notes(record: Mapping[str, Any], plan: Plan | None) -> Iterator[str]:
    here = record.get("accelerator")
    if plan is None and record.get("plan") is not None:
        yield f"The plan {record['plan']} is no longer beside the record: nothing to compare with."
    elif plan is None:
        yield "The run had no plan: nothing was predicted."
    elif here == "cpu" and not plan.offer.accelerator.startswith(CPU_PREFIX):
        yield (
            f"It ran on a processor, the plan is for {plan.offer.accelerator}: the errors say"
            " nothing of the prediction."
        )
    if here == "cpu":
        yield "The peak memory of a processor is not measured."
    if (record.get("measured") or {}).get("step_time_s") is None:
        yield "The run was too short to time: its first 3 steps are left out."


def _profile_notes(profiled: Mapping[str, Any] | None) -> Iterator[str]:
    if profiled is not None:
        first, last = profiled["first_step"], profiled["last_step"]
        yield (
            f"The rows of kernels are of the first process in steps {first} to {last}, which the"
            f" profiler slows ({float(profiled['step_s']) * 1e3:.4g} ms each); no other row counts"
            " them."
        )
        if profiled["device"] == "cpu":
            yield "On a processor they are the operations, whose time the profiler adds to."


def _profiled(path: Path) -> dict[str, Any] | None:
    """Return the times of profiled steps; None where there are none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    needed = {"device", "step_s", "parts_s", "first_step", "last_step"}
    return found if isinstance(found, dict) and needed <= set(found) else None


def _record(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = "there is none" if not path.exists() else error.strerror or str(error)
        raise UsageError(
            f"No run record can be read at {path}: {reason}.",
            fix="give the folder that `gpuplan run` named; it has a record once the run has ended.",
        ) from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("measured"), dict):
        raise _no_record(path)
    return found


def _no_record(path: Path) -> UsageError:
    return UsageError(
        f"{path} is not the record of one run.",
        fix="give the folder of a run, or its record.json.",
    )


def _plan(path: Path) -> Plan | None:
    if not path.exists():
        return None
    try:
        return Plan.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, ValueError):
        raise UsageError(
            f"{path} is not a plan that this version can read.",
            fix="move it away to see what was measured alone.",
        ) from None
