"""What to expect of runs whose software nobody looked into.

Published records as they were first written down, and runs that no constant has been near.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gpuplan.api.validation import TimedRun
from gpuplan.planner.predict.interval import step_interval
from gpuplan.planner.validation.errors import Observation, summarise

from ..groups import LARGE_ENOUGH
from ..published_records import PUBLISHED
from ..tables import factor, percent, row_of, signed

UNSEEN = PUBLISHED / "unseen" / "records.jsonl"
"""Runs from sources that nothing is fitted to: tests/published/unseen/README.md."""

PART = """\
## Runs that nobody looked into

The records of most sources above were compared with the configurations of the programs that ran,
and corrected. Whoever plans a run knows less of it. Two sets show what that costs.

**As first written.** The same records as they were written down from the pages of their sources
alone (tests/published/first_reading.jsonl), each without its source, with the sources that no fit
explains: the mean over the {first_groups} sources of {large} runs and more is {first_mape}, and
{first_covered} lie in the 80 % interval. That an interval of such a run is wider than one of a
checked record (constant `doubt.unchecked`) is fitted to this; every plan and every record without
the feature `checked-software` has it. Until 2026-11-29 nothing had it, and 69 % of them lay
inside.

**Unseen.** {unseen_rows} runs of {unseen_groups} sources, gathered on 2026-11-29
([tests/published/unseen](../tests/published/unseen/README.md)) after the constants were fitted.
Nothing is fitted to them. As the code stood they were 17.6 % off in the mean over sources, and 58 %
of them in the interval; now {unseen_mape} (median of the runs {unseen_median}) and
{unseen_covered}.
Four things changed after they were looked at. Depthwise convolutions in fp32 and tf32 were priced
as products of one column (EfficientNet was 80 % off). Few output channels of square filters were
padded to the largest tile: with a smaller one and no constant moved, DenseNet's runs on an RTX-3090
go from 22 to 27 % too slow to 4 to 10, Lambda's error within folds from 8.5 to 8.0 %, and nnU-Net's
in two dimensions here from 16 to 5. In three it would go from 24 to 14, but our own on an H100 from
8 to 21, so there nothing changed. The wider interval above was fitted without these rows: without
it 64 % would be inside. A doubt about convolutions of sequences and volumes (WaveGlow, nnU-Net) is
an estimate. Of those models these rows are no evidence.

{table}

Where they are worst. WaveGlow and PSPNet convolve with dilated filters, for which cuDNN has slower
kernels than for others; they are priced alike. Megatron-LLaMA and Swiss AI's run on fabrics of
their own (4 x 200 Gbit/s RoCE a node, Slingshot) with optimizers whose traffic is exposed more than
is predicted. Transformer Engine's layers in fp8 outside Megatron (te-issue-72) fuse what eager
torch does not. Of nnU-Net in DeepLearningExamples nvFuser merges the norms, which are priced as
torch's own."""


@dataclass(frozen=True)
class Reading:
    """A run without its source, as its record was first written."""

    source: str
    error: float
    covered: bool


def readings(runs: Iterable[TimedRun]) -> list[Reading]:
    """Return how far runs are from their predictions without their source."""
    found: list[Reading] = []
    for run in runs:
        unseen = run.held_out("source")
        step = step_interval(unseen.seconds(), unseen.doubts(), unseen.cache.constants)
        found.append(
            Reading(
                source=run.source,
                error=step.value / run.measured_s - 1,
                covered=step.low <= run.measured_s <= step.high,
            )
        )
    return found


def unread_part(first: Sequence[Reading], unseen: Sequence[Observation]) -> str:
    """Return the part of docs/accuracy.md; empty where nothing was read so.

    Args:
        first: the published records as first written.
        unseen: the runs that nothing is fitted to.
    """
    rows = list(summarise(unseen, "source_group", "step_time_s"))
    if not first or not rows:
        return ""
    sources = _by_source(first)
    errors = [one for seen in unseen if (one := _error(seen)) is not None]
    shown = ("source", "n", "MAPE", "bias", "in 80 %", "width")
    lines = [row_of(shown), row_of(["---", *["--:"] * (len(shown) - 1)])]
    for row in rows:
        cells = [row.group, str(row.n), percent(row.mape), signed(row.bias)]
        lines.append(row_of([*cells, percent(row.covered, 0), factor(row.width)]))
    return PART.format(
        first_groups=len(sources),
        large=LARGE_ENOUGH,
        first_mape=percent(fmean(fmean(abs(r.error) for r in one) for one in sources.values())),
        first_covered=percent(covered_readings(first), 0),
        unseen_rows=len(errors),
        unseen_groups=len(rows),
        unseen_mape=percent(mean_unseen_error(unseen)),
        unseen_median=percent(median(abs(one) for one in errors)),
        unseen_covered=percent(covered_unseen(unseen), 0),
        table="\n".join(lines),
    )


def mean_unseen_error(unseen: Sequence[Observation]) -> float:
    """Return the mean absolute relative error of step times, sources weighing alike."""
    return fmean(row.mape for row in summarise(unseen, "source_group", "step_time_s"))


def covered_unseen(unseen: Sequence[Observation]) -> float:
    """Return the share of these runs that lie in the 80 % interval."""
    timed = [seen for seen in unseen if _error(seen) is not None]
    return fmean(_is_covered(seen) for seen in timed)


def _error(seen: Observation) -> float | None:
    measured, predicted = seen.measured_step_time_s, seen.predicted_step_time_s
    return predicted.value / measured - 1 if measured and predicted else None


def _is_covered(seen: Observation) -> bool:
    measured, predicted = seen.measured_step_time_s, seen.predicted_step_time_s
    assert measured is not None and predicted is not None
    return predicted.low <= measured <= predicted.high


def covered_readings(found: Sequence[Reading]) -> float:
    """Return the mean share inside the interval over sources of enough runs."""
    return fmean(fmean(one.covered for one in rows) for rows in _by_source(found).values())


def _by_source(found: Sequence[Reading]) -> dict[str, list[Reading]]:
    sources: dict[str, list[Reading]] = defaultdict(list)
    for one in found:
        sources[one.source].append(one)
    return {name: rows for name, rows in sources.items() if len(rows) >= LARGE_ENOUGH}
