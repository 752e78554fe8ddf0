"""docs/accuracy.md: everything that a stranger needs to evaluate the predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpuplan.planner.constants import known_constants
from gpuplan.planner.validation.errors import (
    GroupedBy,
    Observation,
    SummaryRow,
    Validation,
    prediction_errors,
    summarise,
)
from gpuplan.planner.validation.folds import PROTOCOLS, Protocol
from gpuplan.profiles.records import RunRecord

from .errors.compute_share import ComputeShare, compute_part
from .errors.day_before import day_before_part
from .errors.findings import CONVOLUTIONS, WHERE_INTERVALS_FAIL
from .errors.findings_by_source import CARRIERS, ONCE_A_STEP, READ_IN_CONFIGURATIONS
from .errors.levels import levels_of, levels_part
from .errors.own_steps import OWN_STEPS
from .errors.trends import bias_by_precision, find_trends, trends_part
from .errors.unread import Reading, unread_part
from .errors.unread_fits import unread_fits_part
from .errors.unread_memory import unread_memory_part
from .errors.worst import worst_part
from .groups import (
    LARGE_ENOUGH,
    MEAN_TARGETS,
    NEVER_FITTED,
    TARGETS,
    beaten_by_null,
    coverage,
    mean_error,
    mean_targeted_error,
    one_device_groups,
    split_groups,
    summarise_groups,
    target_of,
)
from .layouts.published_best_part import published_best_part
from .layouts.regret import Sweep, find_sweeps
from .layouts.regret_part import regret_part
from .layouts.unread_layouts import unread_layouts_part
from .memory import memory_part
from .others.step_times import compare, others_part
from .programmes import Programme
from .programmes_part import programmes_part
from .programmes_unseen import unseen_jobs_part, unseen_programmes_part
from .speed import Speed
from .tables import error_table, percent, row_of, signed
from .truths import Truth

"""Worst rows shown of one source: those of a sweep have one cause."""
NEWLINE = "\n"
PLOTS: dict[Protocol, str] = {
    "configuration": "Five folds by configuration",
    "source": "One source left out",
    "accelerator": "One accelerator left out",
}
EXPLAINED: dict[Protocol, str] = {
    "configuration": "No model in one layout stands in two folds. This is what to expect of a run"
    " like published ones: same software, same kind of device, another model or layout.",
    "source": "Nothing of a laboratory, its software or its machines was seen. This is what to"
    " expect of runs by somebody else. Targets are twice those of the five folds.",
    "accelerator": "No run on the device was seen, and everything measured on it (matrix products,"
    " attention, collectives) is taken away too: its curves come from its nearest relative by"
    " datasheet. This is what to expect of a new device.",
}
INTRODUCTION = """\
# Accuracy

How far predictions are from published measurements. `make accuracy` writes this page, its plots
included, from the {rows} run records in `tests/published/`; `tests/test_accuracy.py` fails when a
bound that is met here no longer is.

## How it was evaluated

- **What was measured.** Others did: {sources} public sources, each record with its page and commit
  ([tests/published](../tests/published/README.md)). A record states model, layout, device,
  software and date, and the step time or the peak memory that was measured. Fields that a source
  leaves out are taken as that software does by default, and named row by row (`gpuplan validate`).
- **What is predicted.** The model is traced without a device and priced from kernel measurements
  and datasheets ([how it predicts](how-it-predicts.md)). {constants} constants of the step model
  and of its intervals are not given by any kernel measurement (launch costs, overlap, how much
  slower a kernel runs in a real step). Each has a prior with its source and a
  spread; `benchmarks/fit.py` moves them from there to the records by robust least squares, every
  source weighing alike. None depends on the name of a source: keys are stack, date, architecture
  and kind of kernel.
- **Held out.** A run is predicted with constants fitted *without* the runs of its own fold:
  (a) five folds by configuration, (b) without its source, (c) without its accelerator and without
  the curves measured on it. `gpuplan validate RUNS --hold-out configuration|source|accelerator`
  prints the same for any record file.
- **Errors.** error = predicted ÷ measured − 1; MAPE is the mean of |error|, bias the mean of error.
  A mean over groups counts every group once: one sweep holds {largest} of the rows.
- **Null models** know the FLOPs of a step and the peak of the device. *50 % HFU* takes half of the
  peak. *best constant* takes the constant that fits best what is not held out: under (a) the other
  folds of the very same group, the hardest to beat; under (b) and (c) all other sources or devices.
- **Interval.** *in 80 %* is the share of measurements inside the predicted 80 % interval, *width*
  how wide it is on average.

What this does not show. The form of the model and some priors were chosen after looking at errors
on these records, so errors are optimistic even where the constants were fitted without a run.
A prior is a judgement, and some rest on the same few public sources. Sources that take part in no
fit and in no mean: {never_fitted}.
Single rows of one source share software and machine: {n_small} of the groups have fewer than
{large} runs, and their numbers are anecdotes.
"""


def page(
    evaluated: Mapping[Protocol | None, Sequence[Observation]],
    records: Sequence[RunRecord],
    truths: Sequence[Truth],
    speed: Speed | None,
    on_networks: Mapping[float, Sequence[Sweep]] | None = None,
    whole: Sequence[Programme] = (),
    shares: Sequence[ComputeShare] = (),
    first: Sequence[Reading] = (),
    unseen: Sequence[Observation] = (),
    others: Sequence[Observation] = (),
    of_memory: Sequence[Observation] = (),
    unseen_programmes: Sequence[Programme] = (),
    usual: Sequence[Observation] = (),
    layouts: Sequence[Observation] = (),
    fits: Sequence[Observation] = (),
    jobs: Sequence[Programme] = (),
    more: Sequence[Observation] = (),
    neusight: Mapping[Protocol | None, Sequence[Observation]] | None = None,
) -> str:
    """Return the whole page.

    Args:
        evaluated: the runs under each protocol; None: nothing held out.
        records: the records, in the same order.
        truths: known truths and their predictions.
        speed: how long it takes to evaluate 1,000 rows, where that was measured.
        on_networks: sweeps on several nodes, predicted for multiples of the rate between them.
        whole: published programmes and what is expected of them.
        shares: what runs are predicted to compute in the time of their steps.
        first: the runs as their records were first written.
        unseen: runs that nothing is fitted to.
        others: the same, of other kinds of models and software.
        of_memory: runs gathered for their peak memory.
        unseen_programmes: whole trainings that were gathered before any was predicted.
        usual: runs of usual jobs that nothing is fitted to.
        layouts: runs that others compared layouts by.
        fits: jobs of which it is known whether they ran or ran out of memory.
        jobs: small jobs, as `unseen_programmes`.
        more: runs of more jobs that nothing is fitted to.
        neusight: NeuSight's runs that are no open records, without their source and accelerator.
    """
    groups = split_groups(records)
    parts = [_introduction(records, groups), _overview(evaluated, groups)]
    if neusight is not None:
        parts.append(others_part(compare(records, evaluated, neusight)))
    parts.append(unread_part(first, unseen, others, usual, more))
    parts.append(day_before_part(evaluated["source"], groups))
    for protocol in PROTOCOLS:
        parts.append(_protocol_part(protocol, evaluated[protocol], groups))
        if protocol == "configuration":
            parts += [levels_part(levels_of(evaluated[protocol], records, groups)), CARRIERS]
    parts += [
        WHERE_INTERVALS_FAIL,
        compute_part(shares),
        trends_part(
            find_trends(records, evaluated["source"], groups),
            bias_by_precision(records, evaluated["source"], groups),
        ),
        ONCE_A_STEP,
        READ_IN_CONFIGURATIONS,
        OWN_STEPS,
        regret_part(find_sweeps(records, evaluated["configuration"]), on_networks),
        unread_layouts_part(layouts),
        published_best_part(),
        _one_device_part(evaluated, records),
        memory_part(evaluated[None], records),
        unread_memory_part(of_memory),
        unread_fits_part(fits),
        _truths_part(truths),
        programmes_part(whole),
        unseen_programmes_part(unseen_programmes),
        unseen_jobs_part(jobs),
        worst_part(evaluated["configuration"], records),
        _skipped_part(prediction_errors(evaluated[None]), records),
        _speed_part(speed),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def share_predicted(observations: Iterable[Observation]) -> tuple[int, int]:
    """Return (predicted, decodable) runs that state a step time or memory.

    Decodable: the model loads, the accelerator is one type, the precision is known.
    """
    decodable = [seen for seen in observations if not _undecodable(seen.skipped)]
    return sum(seen.skipped is None for seen in decodable), len(decodable)


def _undecodable(skipped: str | None) -> bool:
    return skipped is not None and skipped.startswith("precision ")


def _introduction(records: Sequence[RunRecord], groups: Mapping[str, str]) -> str:
    sizes = Counter(groups.values())
    return INTRODUCTION.format(
        rows=f"{len(records):,}",
        sources=len({record.source_group for record in records}),
        constants=len(known_constants()),
        largest=f"{max(sizes.values()):,}",
        never_fitted="; ".join(f"{name} ({why})" for name, why in NEVER_FITTED.items()),
        n_small=sum(size < LARGE_ENOUGH for size in sizes.values()),
        large=LARGE_ENOUGH,
    )


def _overview(
    evaluated: Mapping[Protocol | None, Sequence[Observation]], groups: Mapping[str, str]
) -> str:
    headings = "constants fitted", "mean over groups", "target", "groups", "with a target"
    lines = [
        row_of((*headings, "in 80 %", "beaten by a null model")),
        row_of(("---", *["--:"] * 5, "---")),
    ]
    for protocol, observations in evaluated.items():
        rows = _rows_for_mean(protocol, observations, groups)
        counted = [row for row in rows if row.group not in NEVER_FITTED]
        targeted = None if protocol == "accelerator" else mean_targeted_error(rows)
        least = 1 if protocol == "accelerator" else LARGE_ENOUGH
        meant = [row for row in rows if row.n >= least]
        cells = [_protocol_name(protocol), percent(mean_error(meant))]
        cells += [percent(MEAN_TARGETS.get(protocol) if protocol else None)]
        cells += [str(len(counted)), percent(targeted), percent(coverage(rows), 0)]
        lines.append(row_of([*cells, ", ".join(beaten_by_null(counted)) or "none"]))
    predicted, decodable = share_predicted(evaluated[None])
    share = percent(predicted / decodable if decodable else None)
    return f"""## In short

Step times. Groups are sources, split where one holds dense models and mixtures of experts; the mean
is over those of {LARGE_ENOUGH} runs and more. In the last line they are all accelerators. *with a
target* is the mean over the {len(TARGETS)} groups that have one below. The last two columns look at
groups of {LARGE_ENOUGH} runs and more.

{NEWLINE.join(lines)}

{predicted:,} of {decodable:,} decodable records are predicted: {share}."""


def _rows_for_mean(
    protocol: Protocol | None, observations: Sequence[Observation], groups: Mapping[str, str]
) -> list[SummaryRow]:
    if protocol == "accelerator":
        fitted = [seen for seen in observations if seen.source_group not in NEVER_FITTED]
        return list(summarise(fitted, "accelerator", "step_time_s", hold_out=protocol))
    return summarise_groups(observations, groups, protocol)


def _protocol_name(protocol: Protocol | None) -> str:
    return "to all records (in sample)" if protocol is None else f"without: {_left_out(protocol)}"


def _left_out(protocol: Protocol) -> str:
    return {
        "configuration": "the fold (a)",
        "source": "the source (b)",
        "accelerator": "the accelerator (c)",
    }[protocol]


def _protocol_part(
    protocol: Protocol, observations: Sequence[Observation], groups: Mapping[str, str]
) -> str:
    parts = [
        f"## Step time: {PLOTS[protocol].lower()}",
        EXPLAINED[protocol],
        f"![{PLOTS[protocol]}: predicted against measured](img/accuracy-{protocol}.svg)",
        "By source:",
        error_table(summarise_groups(observations, groups, protocol), protocol),
    ]
    for by, name in (("accelerator", "accelerator"), ("stack", "software stack")):
        rows = list(summarise(observations, _grouping(by), "step_time_s", hold_out=protocol))
        parts += [f"By {name}:", error_table(rows, protocol)]
    return "\n\n".join(parts)


def _grouping(by: str) -> GroupedBy:
    return "accelerator" if by == "accelerator" else "stack"


def _one_device_part(
    evaluated: Mapping[Protocol | None, Sequence[Observation]], records: Sequence[RunRecord]
) -> str:
    protocol: Protocol = "configuration"
    groups = one_device_groups(records, evaluated[protocol])
    rows = summarise_groups(evaluated[protocol], groups, protocol)
    targets = [(row, target) for row in rows if (target := target_of(row.group, protocol))]
    met = sum(row.mape <= target for row, target in targets)
    return "\n\n".join(
        [
            "## Step time: one model on one device",
            "BERT, ResNet-50 and GPT-2 from the tables of single GPUs, five folds."
            f" {met} of {len(targets)} groups meet their target; the mean over them is"
            f" {percent(mean_error(row for row, _ in targets))}.",
            error_table(rows, protocol),
            CONVOLUTIONS,
        ]
    )


def _truths_part(truths: Sequence[Truth]) -> str:
    lines = [row_of(("run", "figure", "published", "predicted", "80 %", "error"))]
    lines.append(row_of(("---", "---", "--:", "--:", "--:", "--:")))
    for truth in truths:
        values = [truth.published, truth.predicted, *truth.ends]
        shown = [percent(v) if truth.unit == "MFU" else f"{v:.1f}" for v in values]
        lines.append(
            row_of(
                (truth.id, truth.unit, *shown[:2], f"{shown[2]} – {shown[3]}", signed(truth.error))
            )
        )
    sources = sorted({f"- {truth.id}: {truth.source}" for truth in truths})
    return "\n".join(
        [
            "## Known truths",
            "",
            "What papers say of whole runs. They state no step time, so nothing is fitted to them.",
            "",
            *lines,
            "",
            *sources,
        ]
    )


def _skipped_part(answer: Validation, records: Sequence[RunRecord]) -> str:
    sources = {record.id: record.source_group for record in records}
    found = Counter((row.skipped, row.quantity, sources[row.id]) for row in answer.rows)
    names = {"step_time_s": "step time", "peak_memory_bytes": "peak memory"}
    lines = [
        f"- {count} of {source}, {names[quantity]}: {reason}"
        for (reason, quantity, source), count in found.most_common()
        if reason
    ]
    return "\n".join(["## What is not predicted", "", *(lines or ["Every row is."])])


def _speed_part(speed: Speed | None) -> str:
    if speed is None:
        return ""
    shared = (
        f" Others used the machine at the same time (load {speed.load:.1f}); processor time is what"
        " the work itself takes."
        if speed.load > speed.cores
        else ""
    )
    cores = "1 core" if speed.cores == 1 else f"{speed.cores} cores"
    return f"""## How long the evaluation takes

`gpuplan validate` on {speed.rows:,} of these records, evenly drawn, on {cores},
{speed.date}: {speed.cold_s:.0f} s from an empty cache ({speed.cold_cpu_s:.0f} s of processor time,
spread over the cores; budget 180 s), {speed.warm_s:.0f} s with the traces in it
({speed.warm_cpu_s:.0f} s; budget 60 s).{shared} Measured with `benchmarks/accuracy.py --speed`."""
