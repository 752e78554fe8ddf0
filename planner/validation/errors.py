"""Predictions against measurements: the error of every run, its summary, and the null models.

Averages over source groups count every group once, however many rows it has. Under a protocol that
holds runs out, the constant of the null model is fitted without them too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, median
from typing import Literal

from ...catalog.frozen import FrozenModel
from ..plan.plan import SCHEMA_VERSION, Basis, Estimated
from .folds import Protocol
from .null_models import (
    FIXED_HFU,
    Utilisation,
    constant_without,
    folded_null_mape,
    left_out_null_mape,
    null_mape,
)

Quantity = Literal["step_time_s", "peak_memory_bytes"]
GroupedBy = Literal["source_group", "accelerator", "stack"]
GROUPINGS: tuple[GroupedBy, ...] = ("source_group", "accelerator", "stack")
Verdict = Literal["fits", "out_of_memory"]
NOTHING_MEASURED = (
    "the record measures nothing: neither step_time_s nor peak_memory_gib, and no oom"
)


class PredictionError(FrozenModel):
    """One quantity of one run: measured, predicted, and how far off."""

    id: str
    quantity: Quantity
    measured: float | None
    """Measured value; None when the run ended out of memory, as then only the verdict counts, and
    where the record measures nothing (skipped says so)."""
    predicted: float | None
    low: float | None
    high: float | None
    error: float | None
    """predicted ÷ measured − 1; None where one of them is missing."""
    basis: Basis | None
    skipped: str | None
    """Why it was not predicted; None for a predicted row."""
    assumed: tuple[str, ...]
    """What the record does not state and what was taken instead, as `field=value (reason)`."""
    verdict_measured: Verdict | None = None
    verdict_predicted: Verdict | None = None


class SummaryRow(FrozenModel):
    """The errors of one group of rows; all but `n` are ratios (0.05 is 5 %)."""

    by: GroupedBy
    group: str
    quantity: Quantity
    n: int
    """Rows with an error; skipped rows are not counted."""
    mape: float
    """Mean of |error|."""
    median: float
    """Median of |error|."""
    p90: float
    """90th percentile of |error|."""
    worst: float
    """The error, with its sign, that is farthest from zero."""
    bias: float
    """Mean error."""
    null_best_constant: float | None
    """MAPE of the best constant HFU. Sources and accelerators that are held out: that of all
    others, each weighing the same. Else that of the group itself, 5-fold by configuration (the
    group left out where it has one configuration): the hardest to beat, for it knows the group."""
    null_50_hfu: float | None
    """MAPE of 50 % HFU."""
    null_left_out: float | None
    """MAPE of the best constant HFU of all other groups."""
    covered: float | None
    """Share of the measurements inside the predicted 80 % interval."""
    width: float | None = None
    """Mean of √(high ÷ low) − 1: 0.13 is an interval of ×÷ 1.13."""
    skipped: int = 0


class VerdictCount(FrozenModel):
    """Out-of-memory verdicts against what happened, over all runs that say it."""

    n: int
    right: int
    missed_out_of_memory: int
    """Predicted to fit, ran out of memory."""
    false_out_of_memory: int
    """Predicted not to fit, ran."""


class Validation(FrozenModel):
    """The whole answer of `gpuplan validate`."""

    schema_version: str = SCHEMA_VERSION
    gpuplan_version: str | None = None
    hold_out: Protocol | None = None
    """What was kept from the constants that predicted a run: all runs of its fold of
    configurations, of its source, or of its accelerator; None: nothing."""
    rows: tuple[PredictionError, ...]
    summary: tuple[SummaryRow, ...]
    verdicts: VerdictCount
    macro: dict[str, float]
    """Mean of the MAPE over source groups, by quantity: no group counts more for being larger."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One run: what was measured, what was predicted, and the groups it belongs to."""

    id: str
    source_group: str
    accelerator: str
    stack: str
    configuration: str
    """Runs with equal text never stand on both sides of a fold (model, params and layout)."""
    assumed: tuple[str, ...] = ()
    skipped: str | None = None
    measured_step_time_s: float | None = None
    predicted_step_time_s: Estimated | None = None
    ideal_step_time_s: float | None = None
    """Hardware FLOPs of one accelerator ÷ its dense peak: the step at 100 % HFU."""
    measured_memory_bytes: float | None = None
    predicted_memory_bytes: Estimated | None = None
    predicted_state_bytes: float | None = None
    """Parameters, gradients and optimizer states in it: all that others' estimators count."""
    memory_skipped: str | None = None
    """Why only the memory was not predicted."""
    verdict_measured: Verdict | None = None
    verdict_predicted: Verdict | None = None

    @property
    def hfu(self) -> float | None:
        """Measured hardware FLOPs utilisation; None where it is not defined."""
        if not self.ideal_step_time_s or not self.measured_step_time_s:
            return None
        return self.ideal_step_time_s / self.measured_step_time_s


def prediction_errors(
    observations: Sequence[Observation], *, hold_out: Protocol | None = None
) -> Validation:
    """Return every row's error and the summaries by source group, accelerator and stack.

    Args:
        observations: the runs, predicted under the protocol.
        hold_out: the protocol; the null models follow it.
    """
    rows = [row for seen in observations for row in _rows_of(seen)]
    summary = tuple(
        row
        for by in GROUPINGS
        for quantity in ("step_time_s", "peak_memory_bytes")
        for row in summarise(observations, by, quantity, hold_out=hold_out)
    )
    return Validation(
        hold_out=hold_out,
        rows=tuple(rows),
        summary=summary,
        verdicts=_count_verdicts(observations),
        macro=_macro(summary),
    )


def summarise(
    observations: Sequence[Observation],
    by: GroupedBy,
    quantity: Quantity,
    *,
    hold_out: Protocol | None = None,
) -> Iterable[SummaryRow]:
    """Yield the errors of one quantity of every group of runs."""
    groups: dict[str, list[Observation]] = defaultdict(list)
    skipped: dict[str, int] = defaultdict(int)
    for seen in observations:
        measured, predicted = _quantity_of(seen, quantity)
        if measured is None:
            continue
        if predicted is None:
            skipped[getattr(seen, by)] += 1
        else:
            groups[getattr(seen, by)].append(seen)
    null_mapes = _best_constants(groups, hold_out) if quantity == "step_time_s" else {}
    for group in sorted(groups):
        row = _summary_row(by, group, quantity, groups, skipped[group])
        yield row.model_copy(update={"null_best_constant": null_mapes.get(group)})


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies, linearly interpolated."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def _rows_of(seen: Observation) -> Iterable[PredictionError]:
    """Yield a row for each quantity; the verdict is on that of the memory, if there is one."""
    verdict_alone = seen.verdict_measured is not None and seen.measured_step_time_s is None
    has_memory = seen.measured_memory_bytes is not None or verdict_alone
    if seen.measured_step_time_s is not None:
        yield _row(
            seen,
            "step_time_s",
            seen.measured_step_time_s,
            seen.predicted_step_time_s,
            seen.skipped,
            has_verdict=not has_memory,
        )
    if has_memory:
        yield _row(
            seen,
            "peak_memory_bytes",
            seen.measured_memory_bytes,
            seen.predicted_memory_bytes,
            seen.skipped or seen.memory_skipped,
            has_verdict=True,
        )
    if seen.measured_step_time_s is None and not has_memory:
        yield _row(seen, "step_time_s", None, None, NOTHING_MEASURED, has_verdict=False)


def _row(
    seen: Observation,
    quantity: Quantity,
    measured: float | None,
    predicted: Estimated | None,
    skipped: str | None,
    *,
    has_verdict: bool,
) -> PredictionError:
    return PredictionError(
        id=seen.id,
        quantity=quantity,
        measured=measured,
        predicted=predicted.value if predicted else None,
        low=predicted.low if predicted else None,
        high=predicted.high if predicted else None,
        error=_error(measured, predicted),
        basis=predicted.basis if predicted else None,
        skipped=skipped,
        assumed=seen.assumed,
        verdict_measured=seen.verdict_measured if has_verdict else None,
        verdict_predicted=seen.verdict_predicted if has_verdict else None,
    )


def _error(measured: float | None, predicted: Estimated | None) -> float | None:
    return predicted.value / measured - 1 if measured and predicted else None


def _quantity_of(seen: Observation, quantity: Quantity) -> tuple[float | None, Estimated | None]:
    if quantity == "step_time_s":
        return seen.measured_step_time_s, seen.predicted_step_time_s
    return seen.measured_memory_bytes, seen.predicted_memory_bytes


def _summary_row(
    by: GroupedBy,
    group: str,
    quantity: Quantity,
    groups: dict[str, list[Observation]],
    skipped: int,
) -> SummaryRow:
    pairs = [_quantity_of(seen, quantity) for seen in groups[group]]
    errors = [error for pair in pairs if (error := _error(*pair)) is not None]
    sizes = [abs(error) for error in errors]
    known = (
        {name: _utilisations(runs) for name, runs in groups.items()}
        if quantity == "step_time_s"
        else {group: []}
    )
    return SummaryRow(
        by=by,
        group=group,
        quantity=quantity,
        n=len(errors),
        mape=fmean(sizes),
        median=median(sizes),
        p90=percentile(sizes, 0.9),
        worst=max(errors, key=abs),
        bias=fmean(errors),
        null_best_constant=None,
        null_50_hfu=null_mape(known[group], lambda _: FIXED_HFU),
        null_left_out=left_out_null_mape(group, known),
        covered=fmean(p.low <= m <= p.high for m, p in pairs if m is not None and p is not None),
        width=_mean_width(p for _, p in pairs if p is not None),
        skipped=skipped,
    )


def _mean_width(predicted: Iterable[Estimated]) -> float | None:
    ratios = [math.sqrt(one.high / one.low) - 1 for one in predicted if one.low > 0]
    return fmean(ratios) if ratios else None


def _best_constants(
    groups: Mapping[str, Sequence[Observation]], hold_out: Protocol | None
) -> dict[str, float | None]:
    """Return the MAPE of each group by the best constant HFU fitted under the protocol."""
    if hold_out in (None, "configuration"):
        known = {name: _utilisations(runs) for name, runs in groups.items()}
        return {group: folded_null_mape(group, known) for group in groups}
    fold = attrgetter("source_group" if hold_out == "source" else "accelerator")
    folds: dict[str, list[Observation]] = defaultdict(list)
    for seen in (seen for runs in groups.values() for seen in runs):
        folds[fold(seen)].append(seen)
    known = {name: _utilisations(runs) for name, runs in folds.items()}
    constants = {name: constant_without(name, known) for name in folds}
    errors = {
        group: [
            abs(seen.hfu / constant - 1)
            for seen in runs
            if seen.hfu and (constant := constants[fold(seen)])
        ]
        for group, runs in groups.items()
    }
    return {group: fmean(sizes) if sizes else None for group, sizes in errors.items()}


def _utilisations(runs: Iterable[Observation]) -> list[Utilisation]:
    return [Utilisation(seen.configuration, seen.hfu) for seen in runs if seen.hfu]


def _count_verdicts(observations: Iterable[Observation]) -> VerdictCount:
    pairs = [
        (seen.verdict_measured, seen.verdict_predicted)
        for seen in observations
        if seen.verdict_measured and seen.verdict_predicted
    ]
    return VerdictCount(
        n=len(pairs),
        right=sum(measured == predicted for measured, predicted in pairs),
        missed_out_of_memory=sum(pair == ("out_of_memory", "fits") for pair in pairs),
        false_out_of_memory=sum(pair == ("fits", "out_of_memory") for pair in pairs),
    )


def _macro(summary: Iterable[SummaryRow]) -> dict[str, float]:
    by_quantity: dict[str, list[float]] = defaultdict(list)
    for row in summary:
        if row.by == "source_group":
            by_quantity[row.quantity].append(row.mape)
    return {quantity: fmean(mapes) for quantity, mapes in by_quantity.items()}
