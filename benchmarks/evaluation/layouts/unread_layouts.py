"""Choosing between layouts that others compared, and whose runs nobody looked into."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median

from gpuplan.planner.validation.errors import Observation, summarise

from ..errors.unread import covered_unseen, step_error
from ..published_records import PUBLISHED
from ..tables import DASH, percent, row_of, signed
from .regret import Sweep, Tried

UNSEEN_LAYOUTS = PUBLISHED / "unseen" / "layouts.jsonl"
"""tests/published/unseen/README.md says where they are from."""
ORDER_ONLY = frozenset(
    {
        "belle-issue-402",
        "deepspeed-issue-3901",
        "fms-fsdp-issue-63",
        "oumi-pr207",
        "paddlefleetx-pr689",
        "pith-train-pr-40",
        "swiss-ai-pr33",
        "touchnet",
        "whynlp-tinyllama",
    }
)
"""Sources whose device, batch or model was inferred, or whose times are rounded, as was written
down before anything was predicted: they say which layout is faster, and not what a step takes."""
APART = 0.03
"""Times that differ by less are not called different."""

PART = """\
## Layouts that nobody had looked at

{rows} runs of {sources} sources that tried one model on the same devices in several layouts,
micro-batches or ways to recompute: {comparisons} comparisons, gathered on 2026-11-30 before any was
predicted ([tests/published/unseen](../tests/published/unseen/README.md)). Nothing is fitted to
them. Where batches differ within a comparison, times are those of a sample.

The one that is predicted to be fastest is it in {chosen} of {comparisons} (by chance it would be in
{by_chance}). Who follows the advice pays {regret} more than for the best in the mean over sources,
and {median_regret} in the median of the comparisons; who takes any, {random}. Of {pairs} pairs that
are more than 3 % apart, {ordered} are in the right order. As the code stood when they were gathered
36 were chosen, and 84 % of the pairs in order.

The steps of the {timed} sources that state model, device and batch are {mape} off in the mean over
sources, {median_error} in the median of their runs, and {covered} of these runs (of the sources,
{covered_sources}) lie in the 80 % interval. As the code stood it was 24.5, 12.9, 73 and 63 %. Read
again since: DeepSpeed holds 16-bit layers (its runs were taken for autocast's, ATorch's memory up
to 63 % too high), and torchtitan keeps no product of experts where it recomputes by operation.

Where the choice costs most. BELLE trains small models with one sample a device under DeepSpeed,
whose ZeRO-3 runs Python around every module: it is predicted to be the fastest, and is the slowest.
The setup chosen for fms-fsdp tried its allocations again and again, as its source says; nothing in
the prediction says so. Where times are worst: ZeRO-3 of 2021 over Omni-Path (BigScience), two to
four times as long as is predicted; minGPT with 128 tokens a sample, whose step takes as long with
one sample as with seven; BigScience's 104B, whose widths are odd multiples of four on four tensor
ranks (whether that is why is not known); experts divided by tensor ranks in torchtitan, near the
end of the memory.

{table}"""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The comparisons of one source."""

    source: str
    sweeps: tuple[Sweep, ...]

    @property
    def regret(self) -> float:
        """What the setup that is predicted to be fastest takes beyond the fastest: the mean."""
        return fmean(sweep.regret() for sweep in self.sweeps)

    @property
    def at_random(self) -> float:
        """The same of somebody who takes any."""
        return fmean(sweep.regret_at_random for sweep in self.sweeps)

    @property
    def chosen(self) -> int:
        """In how many the fastest is predicted to be it."""
        return sum(sweep.regret() == 0 for sweep in self.sweeps)

    @property
    def pairs(self) -> list[bool]:
        """Whether they are in the right order, of pairs of setups that are apart."""
        return [right for sweep in self.sweeps for right in _ordered(sweep)]


def compared(seen: Sequence[Observation]) -> list[Compared]:
    """Return the comparisons among runs that were timed and predicted, by source.

    Args:
        seen: the runs of `UNSEEN_LAYOUTS`, predicted.
    """
    raw = {one["id"]: one for one in map(json.loads, UNSEEN_LAYOUTS.read_text().splitlines())}
    found: dict[tuple[str, str], list[Tried]] = defaultdict(list)
    for run in seen:
        measured, predicted = run.measured_step_time_s, run.predicted_step_time_s
        if measured and predicted:
            record = raw[run.id]
            tried = Tried(
                id=run.id,
                name=run.id,
                measured_s=measured / record["global_batch"],
                predicted_s=predicted.value / record["global_batch"],
            )
            found[run.source_group, record["comparison"]].append(tried)
    sources: dict[str, list[Sweep]] = defaultdict(list)
    for (source, question), tried in found.items():
        if len(tried) > 1:
            sweep = Sweep(source=source, question=question, tried=tuple(tried))
            sources[source].append(sweep)
    return [
        Compared(source=source, sweeps=tuple(sweeps)) for source, sweeps in sorted(sources.items())
    ]


def timed(seen: Sequence[Observation]) -> list[Observation]:
    """Return the runs whose time counts: of sources that state what they ran, and on what."""
    return [
        run for run in seen if run.source_group not in ORDER_ONLY and step_error(run) is not None
    ]


def median_error(seen: Sequence[Observation]) -> float:
    """Return the median of |predicted ÷ measured − 1| over the runs whose time counts."""
    return median(abs(step_error(run) or 0.0) for run in timed(seen))


def mean_regret(found: Sequence[Compared]) -> float:
    """Return the mean regret, sources weighing alike."""
    return fmean(one.regret for one in found)


def by_chance(found: Sequence[Compared]) -> float:
    """Return how many of the fastest somebody would choose who takes any."""
    return sum(1 / len(sweep.tried) for one in found for sweep in one.sweeps)


def in_order(found: Sequence[Compared]) -> float:
    """Return the share of pairs that are in the right order."""
    return fmean(right for one in found for right in one.pairs)


def unread_layouts_part(seen: Sequence[Observation]) -> str:
    """Return the part of docs/accuracy.md; empty without runs."""
    if not seen:
        return ""
    found, steps = compared(seen), timed(seen)
    sweeps = [sweep for one in found for sweep in one.sweeps]
    rows = list(summarise(steps, "source_group", "step_time_s"))
    return PART.format(
        rows=f"{sum(len(sweep.tried) for sweep in sweeps)}",
        sources=len(found),
        comparisons=len(sweeps),
        chosen=sum(one.chosen for one in found),
        by_chance=f"{by_chance(found):.0f}",
        regret=percent(mean_regret(found)),
        median_regret=percent(median(sweep.regret() for sweep in sweeps)),
        random=percent(fmean(one.at_random for one in found)),
        pairs=sum(len(one.pairs) for one in found),
        ordered=percent(in_order(found), 0),
        timed=len(rows),
        mape=percent(fmean(row.mape for row in rows)),
        median_error=percent(median_error(seen)),
        covered=percent(covered_unseen(steps), 0),
        covered_sources=percent(fmean(row.covered or 0 for row in rows), 0),
        table="\n".join(_table(found, seen)),
    )


def _ordered(sweep: Sweep) -> list[bool]:
    return [
        (one.predicted_s < other.predicted_s) == (one.measured_s < other.measured_s)
        for one, other in combinations(sweep.tried, 2)
        if abs(one.measured_s / other.measured_s - 1) > APART
    ]


def _table(found: Sequence[Compared], seen: Sequence[Observation]) -> list[str]:
    heads = ("source", "compared", "n", "best chosen", "regret", "at random", "in order")
    heads = (*heads, "MAPE", "bias", "in 80 %")
    steps = {row.group: row for row in summarise(timed(seen), "source_group", "step_time_s")}
    lines = [row_of(heads), row_of(("---", *["--:"] * (len(heads) - 1)))]
    for one in found:
        pairs, row = one.pairs, steps.get(one.source)
        cells = [one.source, str(len(one.sweeps)), str(sum(len(s.tried) for s in one.sweeps))]
        cells += [str(one.chosen), percent(one.regret), percent(one.at_random)]
        cells += [f"{sum(pairs)} of {len(pairs)}"]
        cells += (
            [percent(row.mape), signed(row.bias), percent(row.covered, 0)] if row else [DASH] * 3
        )
        lines.append(row_of(cells))
    return lines
