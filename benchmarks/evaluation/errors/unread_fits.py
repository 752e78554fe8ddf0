"""Whether jobs fit their device that nobody looked into, and how large their peaks are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.hardware.device import capacity_bytes
from gpuplan.planner.plan.question import Money
from gpuplan.planner.predict.interval import UNCHECKED_MEMORY_SIGMA, usual_sigma
from gpuplan.planner.validation.errors import Observation

from ..published_records import PUBLISHED
from ..tables import DASH, percent, row_of, signed

UNSEEN_FITS = PUBLISHED / "unseen" / "fits.jsonl"
"""tests/published/unseen/README.md says where they are from."""
MOST_RISK = Money().max_oom
"""Chance of running out of memory that a plan may have which nobody asked for otherwise."""

PART = """\
## Whether it fits, of jobs that nobody had looked at

{rows} jobs of {sources} sources of which it is published whether they ran or ran out of memory,
gathered on 2026-11-30 before any was predicted
([tests/published/unseen](../tests/published/unseen/README.md)): fine-tuning of language models with
and without adapters, 4-bit bases, T5, Whisper, CLIP, detection, Stable Diffusion, CogVideoX, time
series, on 1 to 8 devices. Nothing is fitted to them.

{right} of {rows} verdicts are right: of the {ran} that ran {said_ran} are predicted to fit, of the
{out} that ran out {said_out} not to. A plan is offered where the risk is {most} at most: by the
doubt that plans have that would have been {offered} of those {out}, and {safe} of those that ran;
by the doubt of software that nobody checked, as here, {checked} and {checked_safe}. By parameters,
gradients and optimizer states alone, which are what DeepSpeed's and accelerate's estimators count,
{states_right} verdicts are right: {states_missed} of the {out} that ran out would fit.

Of the {peaks} peaks that are known the error is {median} in the median, {mape} in the mean over
{peak_sources} sources; {covered} of them (of the sources, {covered_sources}) lie in the interval.
As the code stood when they were gathered it was {before}

Where it is wrong.

{findings}

{table}"""
BEFORE = "89 right, 22 of those that ran out, 9.7 and 21.7 %, 60 and 44 %."
FINDINGS = """\
- DeepSpeed's ZeRO-3 holds up to twice what is predicted (h2o-llmstudio, llamafactory, FLAN-T5 on
  V100).
- FastChat's Trainer adds micro-batches up under FSDP's `no_sync`, so that each rank holds whole
  gradients of a 7B (accelerate#2531): read so since, 30 GiB go from 42 % too low to 11.
- A 13B in 4 bits with checkpointing is predicted to take 9.5 GiB, and ran out of a T4's 15.
- torchtitan's Llama-3-8B is 51 % too high; were its loss one kernel, 16 to 20 %: what it runs is
  not stated.
- Batches of T5 are padded to their longest, which nobody published: taken as long as they may be,
  four that ran are predicted not to.
- Full fine-tuning of CogVideoX with 4 samples is 14 to 31 % too high; why is not known."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A job, and what was said of it."""

    source: str
    ran: bool
    fits: bool
    """Whether it is predicted to."""
    peak_of_capacity: float
    """Predicted peak ÷ what the device holds."""
    doubt: float
    """Relative error of the peak, one standard deviation, of a plan under torch."""
    error: float | None
    """Predicted ÷ measured − 1 of its peak, where that is known."""
    states_of_capacity: float
    """Predicted parameters, gradients and optimizer states ÷ what the device holds."""
    covered: bool
    """Whether the measured peak lies in the 80 % interval."""

    @property
    def is_right(self) -> bool:
        """Whether the verdict is right."""
        return self.ran == self.fits

    def is_offered(self, doubt: float | None = None) -> bool:
        """Return whether a plan would be offered to somebody who accepts the usual risk.

        Args:
            doubt: relative error of the peak; None is that of a plan.
        """
        sigma = (self.doubt if doubt is None else doubt) * self.peak_of_capacity
        return self.fits and 1 - NormalDist(self.peak_of_capacity, sigma).cdf(1) <= MOST_RISK


def judged(seen: Sequence[Observation]) -> list[Judged]:
    """Return the jobs that were predicted, of those whose verdict is published."""
    devices = load_catalogue().accelerators
    found: list[Judged] = []
    for run in seen:
        predicted, measured = run.predicted_memory_bytes, run.measured_memory_bytes
        if not (predicted and run.verdict_measured and run.verdict_predicted):
            continue
        capacity = capacity_bytes(devices[run.accelerator])
        found.append(
            Judged(
                source=run.source_group,
                ran=run.verdict_measured == "fits",
                fits=run.verdict_predicted == "fits",
                peak_of_capacity=predicted.value / capacity,
                doubt=usual_sigma("torch-eager"),
                states_of_capacity=(run.predicted_state_bytes or 0.0) / capacity,
                error=predicted.value / measured - 1 if measured else None,
                covered=bool(measured) and predicted.low <= (measured or 0) <= predicted.high,
            )
        )
    return found


def right(found: Sequence[Judged]) -> float:
    """Return the share of verdicts that are right."""
    return fmean(one.is_right for one in found)


def fits_by_states(one: Judged) -> bool:
    """Return whether a job would fit if nothing but its states took memory."""
    return one.states_of_capacity <= 1


def offered(found: Sequence[Judged]) -> int:
    """Return how many jobs that ran out of memory would have been offered as a plan."""
    return sum(one.is_offered() for one in found if not one.ran)


def unread_fits_part(seen: Sequence[Observation]) -> str:
    """Return the part of docs/accuracy.md; empty without jobs."""
    found = judged(seen)
    if not found:
        return ""
    ran, out = ([one for one in found if one.ran is did] for did in (True, False))
    peaks = [one for one in found if one.error is not None]
    by_source = list(_by_source(peaks).values())
    return PART.format(
        rows=len(found),
        sources=len(_by_source(found)),
        right=sum(one.is_right for one in found),
        ran=len(ran),
        said_ran=sum(one.fits for one in ran),
        out=len(out),
        said_out=sum(not one.fits for one in out),
        states_right=sum(one.ran is fits_by_states(one) for one in found),
        states_missed=sum(fits_by_states(one) for one in out),
        most=percent(MOST_RISK, 0),
        offered=offered(found),
        safe=sum(one.is_offered() for one in ran),
        checked=sum(one.is_offered(UNCHECKED_MEMORY_SIGMA) for one in out),
        checked_safe=sum(one.is_offered(UNCHECKED_MEMORY_SIGMA) for one in ran),
        peaks=len(peaks),
        median=percent(median(abs(one.error or 0) for one in peaks)),
        mape=percent(fmean(map(_mean_error, by_source))),
        peak_sources=len(by_source),
        covered=percent(fmean(one.covered for one in peaks), 0),
        covered_sources=percent(fmean(fmean(o.covered for o in s) for s in by_source), 0),
        before=BEFORE,
        findings=FINDINGS,
        table="\n".join(_table(found)),
    )


def _by_source(found: Sequence[Judged]) -> dict[str, list[Judged]]:
    sources: dict[str, list[Judged]] = defaultdict(list)
    for one in sorted(found, key=lambda one: one.source):
        sources[one.source].append(one)
    return sources


def _mean_error(found: Sequence[Judged]) -> float:
    return fmean(abs(one.error) for one in found if one.error is not None)


def _table(found: Sequence[Judged]) -> list[str]:
    heads = ("source", "ran", "said to", "ran out", "said to", "peaks", "MAPE", "bias", "in 80 %")
    lines = [row_of(heads), row_of(("---", *["--:"] * (len(heads) - 1)))]
    for source, rows in _by_source(found).items():
        ran, out = ([one for one in rows if one.ran is did] for did in (True, False))
        errors = [one.error for one in rows if one.error is not None]
        cells = [source, str(len(ran)), str(sum(one.fits for one in ran)), str(len(out))]
        cells += [str(sum(not one.fits for one in out)), str(len(errors))]
        cells += [DASH] * 3
        if errors:
            inside = fmean(one.covered for one in rows if one.error is not None)
            cells[-3:] = [percent(_mean_error(rows)), signed(fmean(errors)), percent(inside, 0)]
        lines.append(row_of(cells))
    return lines
