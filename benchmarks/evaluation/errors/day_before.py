"""The part of docs/accuracy.md about records that were predicted before they were fitted.

Their predictions were kept on the day that the records came in: the one error in this page that
nobody could have tuned.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from gpuplan.catalog.frozen import FrozenModel
from gpuplan.planner.validation.errors import Observation

from ..groups import LARGE_ENOUGH
from ..published_records import DAY_BEFORE
from ..tables import factor, percent, row_of, signed

KEPT_ON = "2026-11-23"


class KeptPrediction(FrozenModel):
    """The step time of one run, as it was predicted on that day."""

    id: str
    predicted_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of predicted step times over some runs."""

    n: int
    mape: float
    bias: float
    covered: float
    """Share of the measurements inside the 80 % interval."""
    width: float
    """Half the interval, relative to the prediction; mean of logarithms."""


def kept_predictions(path: Path = DAY_BEFORE) -> dict[str, KeptPrediction]:
    """Return the predictions of that day by record id."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {one.id: one for one in (KeptPrediction.model_validate(json.loads(x)) for x in lines)}


def errors_of(pairs: Iterable[tuple[float, KeptPrediction]]) -> Errors | None:
    """Return the errors of (measured seconds, prediction); None without one."""
    pairs = list(pairs)
    if not pairs:
        return None
    found = [one.predicted_s / measured_s - 1 for measured_s, one in pairs]
    return Errors(
        n=len(pairs),
        mape=fmean(abs(error) for error in found),
        bias=fmean(found),
        covered=fmean(one.low_s <= measured_s <= one.high_s for measured_s, one in pairs),
        width=math.exp(fmean(math.log(one.high_s / one.predicted_s) for _, one in pairs)) - 1,
    )


def day_before_part(
    without_source: Sequence[Observation],
    groups: Mapping[str, str],
    kept: Mapping[str, KeptPrediction] | None = None,
) -> str:
    """Return the table: each group on the day before, and without its own source now.

    Args:
        without_source: the runs, each predicted with its source held out.
        groups: the group of every record id.
        kept: predictions of the day before; None reads those in the repository.
    """
    kept = kept_predictions() if kept is None else kept
    runs = {seen.id: seen for seen in without_source if seen.id in kept and _is_timed(seen)}
    names = sorted({groups[id] for id in runs})
    rows = [_row(name, [runs[id] for id in runs if groups[id] == name], kept) for name in names]
    headings = ["group", "n", "MAPE", "bias", "in 80 %", "width"]
    headings += ["MAPE now", "bias now", "in 80 % now", "width now"]
    lines = [row_of(headings), row_of(["---", *["--:"] * (len(headings) - 1)])]
    lines += [row_of([name, f"{was.n}", *_cells(was), *_cells(now)]) for name, was, now in rows]
    large = [row for row in rows if row[1].n >= LARGE_ENOUGH]
    of_large = f"**of {LARGE_ENOUGH} runs and more**"
    for text, some in (("**mean over groups**", rows), (of_large, large)):
        if some:
            before, today = _mean([was for _, was, _ in some]), _mean([now for *_, now in some])
            lines.append(row_of([text, f"{len(some)}", *before, *today]))
    return "\n".join(
        [
            "## The day before",
            "",
            f"{len(runs)} runs came in on {KEPT_ON}, two thirds of their groups from sources,"
            " devices or software that no constant had been near. They were predicted with the"
            " code as it stood, and those predictions are kept"
            " (tests/published/day_before.jsonl): the honest error on runs that nobody fitted."
            " *now* is what the same runs are predicted with today, each source held out of"
            " the fit; the form of the model has"
            " seen them since.",
            "",
            *lines,
        ]
    )


def _is_timed(seen: Observation) -> bool:
    return bool(seen.measured_step_time_s and seen.predicted_step_time_s)


def _row(
    name: str, runs: Sequence[Observation], kept: Mapping[str, KeptPrediction]
) -> tuple[str, Errors, Errors]:
    was = errors_of((seen.measured_step_time_s or 0.0, kept[seen.id]) for seen in runs)
    now = errors_of((seen.measured_step_time_s or 0.0, _as_kept(seen)) for seen in runs)
    assert was is not None and now is not None
    return name, was, now


def _as_kept(seen: Observation) -> KeptPrediction:
    step = seen.predicted_step_time_s
    assert step is not None
    return KeptPrediction(id=seen.id, predicted_s=step.value, low_s=step.low, high_s=step.high)


def _cells(errors: Errors) -> list[str]:
    shown = [percent(errors.mape), signed(errors.bias), percent(errors.covered, 0)]
    return [*shown, factor(errors.width)]


def _mean(some: Sequence[Errors]) -> list[str]:
    mape, bias, covered, width = (
        fmean(getattr(one, name) for one in some) for name in ("mape", "bias", "covered", "width")
    )
    return [percent(mape), signed(bias), percent(covered, 0), factor(width)]
