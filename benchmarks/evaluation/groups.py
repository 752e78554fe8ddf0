"""The groups that runs are evaluated in, and the error each is meant to stay below.

A source that holds dense models and mixtures of experts is two groups; runs on one device are
grouped by model and device. A group is decided by what the record says (`params`, `accelerators`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from gpuplan.planner.validation.errors import Observation, SummaryRow, summarise
from gpuplan.planner.validation.folds import Protocol
from gpuplan.profiles.records import RunRecord

TARGETS: dict[str, float] = {
    "llm-foundry": 0.05,
    "vtrain-single": 0.07,
    "bigscience-tr11": 0.07,
    "bigscience-v100": 0.06,
    "internevo": 0.05,
    "narayanan": 0.06,
    "megatron-mp-2020": 0.06,
    "megatron-bridge, dense": 0.09,
    "megatron-bridge, experts": 0.18,
    "torchtitan": 0.10,
    "torchtune": 0.05,
    "maxtext": 0.08,
    "tpu-recipes, dense": 0.12,
}
"""MAPE of step times, 5-fold by configuration. Out of source, twice as much."""
ONE_DEVICE_TARGET = 0.09
"""MAPE of BERT and of ResNet-50 on one accelerator, 5-fold by configuration."""
MEAN_TARGETS: dict[Protocol, float] = {"source": 0.12, "accelerator": 0.12}
"""Mean over groups; by source, over those of `LARGE_ENOUGH` runs and more."""
NEVER_FITTED = {
    "sailor": "precision is not stated; layers are plain Python with an unfused softmax in fp32,"
    " which no stack of ours is",
    "qwen-finetune": "steps of 1.0 to 2.2 s, to a tenth, whatever the sequence: a floor of its"
    " trainer",
}
"""Sources that take part in no fit, and why: they are shown, but in no mean."""
LARGE_ENOUGH = 8
"""Runs from which on a group must beat both null models."""
ONE_DEVICE_SOURCES = frozenset({"lambda", "milabench", "dle", "neusight"})


def has_experts(record: RunRecord) -> bool:
    """Return whether a run's model is a mixture of experts."""
    return bool(record.params.get("experts"))


def split_groups(records: Iterable[RunRecord]) -> dict[str, str]:
    """Return the group of every record id: its source, split where it mixes model families."""
    records = list(records)
    kinds: dict[str, set[bool]] = {}
    for record in records:
        kinds.setdefault(record.source_group, set()).add(has_experts(record))
    return {
        record.id: record.source_group
        if len(kinds[record.source_group]) == 1
        else f"{record.source_group}, {'experts' if has_experts(record) else 'dense'}"
        for record in records
    }


def one_device_groups(
    records: Iterable[RunRecord], observations: Iterable[Observation]
) -> dict[str, str]:
    """Return the group of every record id of the single-GPU tables: model · accelerator."""
    accelerators = {seen.id: seen.accelerator for seen in observations}
    return {
        record.id: f"{_family(record.model)} · {accelerators[record.id]}"
        for record in records
        if record.source_group in ONE_DEVICE_SOURCES
    }


def _family(model: str) -> str:
    """Return the model of a file: "bert" of bert.py and bert_masked.py, "gpt2" of gpt2_eager.py."""
    return model.removesuffix(".py").removesuffix("_masked").removesuffix("_eager")


def summarise_groups(
    observations: Sequence[Observation],
    groups: Mapping[str, str],
    hold_out: Protocol | None,
) -> list[SummaryRow]:
    """Return the step time errors of these groups, held out as the runs were.

    Null models keep to the protocol: what is held out stays the source or the accelerator, however
    finely the runs are grouped here.
    """
    named = [replace(seen, stack=groups[seen.id]) for seen in observations if seen.id in groups]
    return list(summarise(named, "stack", "step_time_s", hold_out=hold_out))


def target_of(group: str, hold_out: Protocol | None) -> float | None:
    """Return the largest MAPE that a group is meant to have; None where there is none."""
    on_one_device = group.startswith(("bert · ", "resnet50 · "))
    target = ONE_DEVICE_TARGET if on_one_device else TARGETS.get(group)
    if target is None or hold_out not in ("configuration", "source"):
        return None
    return target if hold_out == "configuration" else 2 * target


def mean_error(rows: Iterable[SummaryRow]) -> float | None:
    """Return the mean MAPE of groups, each counting the same, without those never fitted."""
    mapes = [row.mape for row in rows if row.group not in NEVER_FITTED]
    return fmean(mapes) if mapes else None


def mean_targeted_error(rows: Iterable[SummaryRow]) -> float | None:
    """Return the mean MAPE of the groups that have a target; None without such a group."""
    mapes = [row.mape for row in rows if row.group in TARGETS]
    return fmean(mapes) if mapes else None


def coverage(rows: Iterable[SummaryRow]) -> float | None:
    """Return the mean share inside the 80 % interval over fitted groups of some size, or None."""
    shares = [
        row.covered
        for row in rows
        if row.covered is not None and row.n >= LARGE_ENOUGH and row.group not in NEVER_FITTED
    ]
    return fmean(shares) if shares else None


def beaten_by_null(rows: Iterable[SummaryRow]) -> list[str]:
    """Return the groups of some size that a null model predicts as well or better."""
    return [
        row.group
        for row in rows
        if row.n >= LARGE_ENOUGH
        and any(
            null is not None and null <= row.mape
            for null in (row.null_best_constant, row.null_50_hfu)
        )
    ]
