"""What runs measured, kept so that later estimates of the same plan rest on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...catalog.errors import GpuplanError
from ...catalog.names import resolve_accelerator
from ...catalog.snapshot import load_catalogue
from ...catalog.types import CPU_PREFIX
from ...planner.predict.measured.known_runs import KnownRuns, KnownStep
from ...profiles.user_model.spec import ModelSpec
from .estimates import Store
from .origin import files_hash

LEAST_STEPS = 10
"""A shorter run says little of a step."""


def workload_key(spec: ModelSpec, *, files: str | None = None) -> str:
    """Return what two runs must share to be of one workload: the files, the params, the inputs.

    Args:
        spec: the model.
        files: `files_hash` of it, where that is known already.
    """
    parts = {
        "files": files or files_hash(spec),
        "class": spec.class_name,
        "params": dict(spec.params),
        "inputs": [one.text for one in spec.inputs],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def is_on_planned(record: Mapping[str, Any], accelerator: str) -> bool:
    """Return whether a run was on the accelerator of its plan, and not a rehearsal elsewhere."""
    named = str(record.get("accelerator"))
    if named == "cpu":
        return accelerator.startswith(CPU_PREFIX)
    try:
        return resolve_accelerator(named, catalogue=load_catalogue(None)) == accelerator
    except GpuplanError:
        return False


def keep_step(
    store: Store,
    record: Mapping[str, Any],
    *,
    run: str,
    workload: str,
    plan_key: str,
    now: Callable[[], datetime],
) -> bool:
    """Keep the step time of a run record; return whether it says one.

    A run that is recorded again, after it went on, takes the place of its older record.
    """
    measured = record.get("measured")
    seconds = measured.get("step_time_s") if isinstance(measured, Mapping) else None
    steps = record.get("steps")
    if not isinstance(seconds, int | float) or not seconds > 0:
        return False
    if not isinstance(steps, int) or steps < LEAST_STEPS:
        return False
    row = {
        "run": run,
        "workload": workload,
        "plan_key": plan_key,
        "at": now().isoformat(),
        "step_time_s": float(seconds),
        "record": json.dumps(dict(record)),
    }
    with store.transaction("IMMEDIATE") as connection:
        connection.execute(
            "INSERT INTO measured_steps (run, workload, plan_key, at, step_time_s, record)"
            " VALUES (:run, :workload, :plan_key, :at, :step_time_s, :record)"
            " ON CONFLICT (run) DO UPDATE SET workload = excluded.workload,"
            " plan_key = excluded.plan_key, at = excluded.at,"
            " step_time_s = excluded.step_time_s, record = excluded.record",
            row,
        )
    return True


@dataclass(frozen=True, kw_only=True)
class KeptStep:
    """One run's measured step, with its run record."""

    run: str
    workload: str
    plan_key: str
    step_time_s: float
    record: Mapping[str, Any]


def kept_steps(store: Store) -> list[KeptStep]:
    """Return every measured step that is kept, oldest first."""
    if not store.exists():
        return []
    with store.transaction() as connection:
        rows = connection.execute(
            "SELECT run, workload, plan_key, step_time_s, record FROM measured_steps ORDER BY at"
        ).fetchall()
    return [KeptStep(**{**dict(row), "record": json.loads(row["record"])}) for row in rows]


def models_of(store: Store) -> dict[str, ModelSpec]:
    """Return the model of each workload that a kept estimate is of, if its files are the same."""
    found: dict[str, ModelSpec] = {}
    for origin in store.origins():
        if files_hash(origin.spec) == origin.files_hash:
            found.setdefault(workload_key(origin.spec, files=origin.files_hash), origin.spec)
    return found


def known_runs(store: Store, workload: str) -> KnownRuns:
    """Return what earlier runs of a workload measured, by plan."""
    if not store.exists():
        return {}
    with store.transaction() as connection:
        rows = connection.execute(
            "SELECT plan_key, step_time_s, run FROM measured_steps WHERE workload = ? ORDER BY at",
            (workload,),
        ).fetchall()
    by_plan: dict[str, list[Any]] = {}
    for row in rows:
        by_plan.setdefault(row["plan_key"], []).append(row)
    return {
        key: KnownStep(times_s=tuple(one["step_time_s"] for one in found), run=found[-1]["run"])
        for key, found in by_plan.items()
    }
