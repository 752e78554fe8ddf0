"""`gpuplan calibrate --from-store`: what one's own runs measured moves the curves of their devices.

A run counts where the store has its steady step time, its run record and its model as it was, it
ran on one node (what several nodes measure is their network too), and its device has curves of its
own. All kernel times of a device get one factor (`planner/validation/fit_factor.py`).
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...catalog.errors import GpuplanError, UsageError
from ...planner.validation.own_calibration import (
    LeftOutRun,
    OwnCalibration,
    OwnRun,
    StoreCalibration,
)
from ...profiles.curves.choice import USUAL_CURVES, CurveChoice

if TYPE_CHECKING:
    from ...launcher.store.measured_steps import KeptStep
    from ...profiles.user_model.spec import ModelSpec
    from ..validation import TimedRun

LEAST_RUNS = 5
"""Devices of one kind differ by 8 % in one job (`BETWEEN_MACHINES`, arXiv:2208.11035v3), the mean
of five of them by less than half of that."""
LEAST_CONFIGURATIONS = 3
"""With two of them left, a third can be predicted as if it had not been seen."""


@dataclass(frozen=True, kw_only=True)
class _Configuration:
    """Runs of one model with its params in one plan."""

    steps: tuple[KeptStep, ...]
    timed: TimedRun
    model: str

    @property
    def measured_s(self) -> float:
        return statistics.median(one.step_time_s for one in self.steps)

    def seconds(self, choice: CurveChoice) -> float:
        return replace(self.timed, cache=self.timed.cache.with_curves(choice)).seconds()


def calibrate_from_store(
    *,
    name: str | None = None,
    out: Path | None = None,
    now: Callable[[], datetime] | None = None,
) -> StoreCalibration:
    """Return what measured runs of the store say of their devices' curves, curve files written.

    A device with too few runs, or whose held-out error would not fall, stays as it is.

    Args:
        name: Only this accelerator; default: every one that was measured.
        out: Where to write the curves of `name`; default: where gpuplan finds them by itself.
        now: The clock, for the date in the file; default: the current time in UTC.

    Raises:
        UsageError: `name` is not in the catalogue, `out` is given without it, or cannot be written.
        GpuplanError: No device has enough runs; says what is needed.
    """
    from ...catalog.names import resolve_accelerator
    from ...catalog.snapshot import load_catalogue

    if out is not None and name is None:
        raise UsageError(
            "--out is one file, and each accelerator has its own.",
            fix="say which accelerator it is for: --name A100-80GB-SXM.",
        )
    wanted = None if name is None else resolve_accelerator(name, catalogue=load_catalogue(None))
    found, left_out = _configurations()
    date = (now or (lambda: datetime.now(UTC)))().date().isoformat()
    devices = sorted({wanted} if wanted else found)
    answers = [_calibrated(one, found.get(one, ()), out=out, date=date) for one in devices]
    if not any(one.factor is not None for one in answers):
        counted = "; ".join(f"{one.accelerator}: {one.why_not}" for one in answers)
        others = "; ".join(dict.fromkeys(one.why for one in left_out))
        raise GpuplanError(
            f"Too few measured runs to move any curves ({counted or 'none is kept'})."
            + (f" {len(left_out)} runs are left out: {others}." if left_out else ""),
            fix=f"needed are {LEAST_RUNS} runs of one node in {LEAST_CONFIGURATIONS} different"
            " models or plans on one accelerator, by `gpuplan run` or `launch`; or measure its"
            " kernels there with `gpuplan calibrate`.",
        )
    return StoreCalibration(accelerators=tuple(answers), left_out=tuple(left_out))


def _configurations() -> tuple[Mapping[str, Sequence[_Configuration]], list[LeftOutRun]]:
    """Return the configurations of every accelerator, and the runs that do not count."""
    from ...launcher.store.estimates import Store
    from ...launcher.store.measured_steps import kept_steps, models_of

    store = Store()
    models = models_of(store)
    left_out: list[LeftOutRun] = []
    counted: list[KeptStep] = []
    for step in kept_steps(store):
        why = _why_not_counted(step, models.get(step.workload))
        if why is None:
            counted.append(step)
        else:
            left_out.append(LeftOutRun(run=step.run, why=why))
    runs = _timed(counted, models)
    by_key: dict[tuple[str, str], list[KeptStep]] = defaultdict(list)
    for step in counted:
        if step.run in runs:
            by_key[step.workload, step.plan_key].append(step)
        else:
            left_out.append(LeftOutRun(run=step.run, why="it cannot be predicted"))
    found: dict[str, list[_Configuration]] = defaultdict(list)
    for steps in by_key.values():
        last = runs[steps[-1].run]
        model = models[steps[-1].workload].name
        found[last.accelerator].append(_Configuration(steps=tuple(steps), timed=last, model=model))
    return found, left_out


def _why_not_counted(step: KeptStep, spec: ModelSpec | None) -> str | None:
    """Return why a run says nothing of kernels; None where it does."""
    record = step.record
    if spec is None:
        return "no kept estimate is of its model as it is now"
    if spec.kind != "file" or spec.class_name or spec.inputs:
        return "its model is no model file"
    if record.get("accelerator") == "cpu":
        return "it ran on a processor"
    if (record.get("per_node") or 1) < (record.get("accelerators") or 1):
        return "it ran on several nodes, whose network is in its time"
    return None


def _timed(steps: Sequence[KeptStep], models: Mapping[str, ModelSpec]) -> dict[str, TimedRun]:
    """Return the runs that can be predicted, by their ids."""
    from ...profiles.tracing_process.batch import profile_all
    from ..validation import RecordedRuns

    if not steps:
        return {}
    lines = [
        json.dumps({**step.record, "id": step.run, "model": str(models[step.workload].path)})
        for step in steps
    ]
    with tempfile.TemporaryDirectory(prefix="gpuplan-calibrate-") as folder:
        path = Path(folder) / "runs.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return {run.id: run for run in RecordedRuns([path], profiler=profile_all).timed()}


def _calibrated(
    accelerator: str, found: Sequence[_Configuration], *, out: Path | None, date: str
) -> OwnCalibration:
    """Return what the runs of one accelerator say, its curve file written if they say enough."""
    from ...planner.validation.fit_factor import best_factor, held_out_error, predicted_with
    from ...profiles.calibrate.scale import own_record, scaled

    runs = sum(len(one.steps) for one in found)
    record = own_record(accelerator, USUAL_CURVES)
    why_not = _too_few(runs, len(found))
    if why_not is None and record is None:
        why_not = "it has no curves of its own to move; measure it with `gpuplan calibrate`"
    if why_not is not None or record is None:
        before = [one.seconds(USUAL_CURVES) for one in found]
        return _answer(accelerator, found, before, None, why_not=why_not)
    measured_s = [one.measured_s for one in found]
    with tempfile.TemporaryDirectory(prefix="gpuplan-calibrate-") as folder:

        def predict(factor: float) -> list[float]:
            path = Path(folder) / f"{factor:.6f}.json"
            path.write_text(json.dumps(scaled(record, factor)), encoding="utf-8")
            return [one.seconds(CurveChoice(given=(path,))) for one in found]

        steps = predicted_with(measured_s, predict)
        factor = best_factor(steps)
        before, after = predict(1.0), predict(factor)
    held_out = held_out_error(steps)
    answer = _answer(accelerator, found, before, after, factor=factor, held_out=held_out)
    why_not = _no_use(answer)
    if why_not is not None:
        return answer.model_copy(update={"why_not": why_not})
    facts = _provenance(answer, record, date)
    path, kept_as = _written({**scaled(record, factor), **facts}, accelerator, out)
    return answer.model_copy(update={"path": str(path), "kept_as": kept_as})


def _no_use(answer: OwnCalibration) -> str | None:
    """Return why a factor is not written; None where it is worth it."""
    from ...planner.validation.fit_factor import LARGEST_FACTOR

    held_out, before, factor = answer.mape_held_out, answer.mape_before, answer.factor
    assert held_out is not None and before is not None and factor is not None
    if max(factor, 1 / factor) > 0.99 * LARGEST_FACTOR:
        return (
            f"kernels {LARGEST_FACTOR:g} times as fast or slow do not explain these steps: look for"
            " what else they wait for"
        )
    if held_out >= before:
        return "runs that were held out would be predicted no better"
    return None


def _too_few(runs: int, configurations: int) -> str | None:
    if runs >= LEAST_RUNS and configurations >= LEAST_CONFIGURATIONS:
        return None
    return (
        f"{runs} of the {LEAST_RUNS} runs that are needed, in {configurations} of"
        f" {LEAST_CONFIGURATIONS} different models or plans"
    )


def _answer(
    accelerator: str,
    found: Sequence[_Configuration],
    before: Sequence[float],
    after: Sequence[float] | None,
    *,
    factor: float | None = None,
    held_out: float | None = None,
    why_not: str | None = None,
) -> OwnCalibration:
    rows = tuple(
        OwnRun(
            runs=tuple(step.run for step in one.steps),
            plan_key=one.steps[-1].plan_key,
            model=one.model,
            measured_s=one.measured_s,
            before_s=before[i],
            after_s=None if after is None else after[i],
            error_before=before[i] / one.measured_s - 1,
            error_after=None if after is None else after[i] / one.measured_s - 1,
        )
        for i, one in enumerate(found)
    )
    return OwnCalibration(
        accelerator=accelerator,
        runs=sum(len(one.steps) for one in found),
        configurations=rows,
        factor=factor,
        mape_before=_mean(abs(row.error_before) for row in rows),
        mape_after=_mean(abs(row.error_after) for row in rows if row.error_after is not None),
        mape_held_out=held_out,
        path=None,
        kept_as=None,
        why_not=why_not,
    )


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.fmean(known) if known else None


def _provenance(answer: OwnCalibration, record: Mapping[str, Any], date: str) -> dict[str, Any]:
    """Return the fields of a curve file that say where it is from."""
    runs = [run for row in answer.configurations for run in row.runs]
    said = (
        f"all kernel times × {answer.factor:.4g} by {len(runs)} runs of your own"  # noqa: RUF001
        f" (gpuplan calibrate --from-store, {date})"
    )
    return {
        "accelerator": answer.accelerator,
        "version": date,
        "sources": [*record["sources"], said],
        "measurement": {
            "command": "gpuplan calibrate --from-store",
            "date": date,
            "factor": answer.factor,
            "runs": runs,
            "mape_before": answer.mape_before,
            "mape_after": answer.mape_after,
            "mape_held_out": answer.mape_held_out,
            "base": {"version": record["version"], "measurement": record.get("measurement")},
        },
    }


def _written(record: dict[str, Any], accelerator: str, out: Path | None) -> tuple[Path, str | None]:
    """Write a curve file; return its path, and where the one is that was there before."""
    from ...profiles.calibrate.calibrate import write_record
    from ...profiles.curves.user_curves import curves_dir

    path = out or curves_dir() / f"{accelerator}.json"
    kept_as: Path | None = None
    if path.is_file():
        # What was measured is not thrown away; files that end so are not looked at.
        kept_as = path.with_name(f"{path.name}.before")
        write_record(json.loads(path.read_text(encoding="utf-8")), kept_as)
    write_record(record, path)
    return path, None if kept_as is None else str(kept_as)
