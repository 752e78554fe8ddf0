"""The same published steps, predicted by gpuplan and by others."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from gpuplan.planner.validation.errors import Observation
from gpuplan.planner.validation.folds import Protocol
from gpuplan.profiles.records import RunRecord

from ..layouts.regret import Sweep, find_sweeps, regret_by_source
from ..published_records import PUBLISHED
from ..tables import percent, row_of

OTHERS = PUBLISHED / "others"
NEUSIGHT_RUNS = OTHERS / "neusight.jsonl"
PREDICTIONS = OTHERS / "predictions.jsonl"
"""A line for each prediction of somebody else: {"id": of a record, "by": …, "step_time_s": …}."""
USUAL_SHARE = 0.4
"""What share of the peak many take for granted: arXiv:2104.04473 and 2204.02311 report 36 to 52 %
of large language models."""

PART = """\
## Beside other predictors

The same runs by those who predict steps without running them, each on its own ground; gpuplan
without anything that was fitted to the source. What others say was read off their own files or
computed with their own code ([tests/published/others](../tests/published/others/README.md)).

**NeuSight** (ASPLOS 2025) and **Habitat** (the predictor of DeepView), as NeuSight's authors
trained and ran both: forward and backward passes in fp32 on one GPU, eager, each step behind a
`gc.collect()`. No run on an A100 or H100 here was known to gpuplan. Of NVIDIA's devices theirs were
trained on kernels of P4, P100, V100, T4 and the A100 of 40 GB. gpuplan's curves of fp32 kernels
are from the kernels that NeuSight's authors measured, of the others too: *new device* is gpuplan
without anything measured on the device, its curves scaled from another's, as NeuSight's are on
H100, L4 and the A100 of 80 GB. *roofline* is the bound of peak and bandwidth, as they computed it.
Of new devices of NVIDIA's, in fp32 on one GPU, NeuSight is nearer than that; Habitat's networks do
not extend to them.

{one_gpu}

**Calculon** (SC 2023) knows GPTs under Megatron and ships its A100 and H100: all {calculon} dense
runs of that kind, {calculon_sources} sources, with the network that the record states and memory
without a limit. *40 % of peak* is the rule of thumb: the FLOPs of the step, with what is
recomputed, at 40 % of the devices' peak.

{split}

Chosen by these predictions, in the {sweeps} sweeps of {sweep_sources} sources in which all setups
were predicted by both (as under "Regret", sources alike), the setup was slower than the fastest
measured by {ours} with gpuplan (at worst {ours_worst}), by {theirs} with Calculon (at worst
{theirs_worst}); any of them at random by {random}.

What others answer is another question. accelerate's and DeepSpeed's estimators of memory count
parameters, gradients and optimizer states ("Whether it fits" below has what that says of jobs that
ran out); SkyPilot's optimizer takes the hours of a job from the user; Infracost prices what a
Terraform plan orders.
"""


def predicted_by(name: str, path: Path = PREDICTIONS) -> dict[str, float]:
    """Return the seconds of a step that somebody else predicts, by the id of a record."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {one["id"]: one["step_time_s"] for one in lines if one["by"] == name}


@dataclass(frozen=True, kw_only=True)
class Regret:
    """How much slower than the fastest measured the setup is that predictions choose: ratios."""

    mean: float
    """Over sources."""
    worst: float
    at_random: float
    """Of any setup, over sources."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Runs that others predicted as well, each as gpuplan predicts it without its source."""

    one_gpu: Sequence[Observation]
    """NeuSight's."""
    new_devices: Mapping[str, float]
    """Seconds of the same, by id, without anything that was measured on the device."""
    split: Sequence[Observation]
    """Those that Calculon knows."""
    sweeps: Sequence[Sweep]
    """Of these, setups between which somebody could choose."""

    @property
    def regret(self) -> Regret:
        """What gpuplan's predictions would choose."""
        return _regret(self.sweeps)

    @property
    def calculon_regret(self) -> Regret:
        """What Calculon's would."""
        said = predicted_by("calculon")
        return _regret([one.with_predictions(said) for one in self.sweeps])

    def split_errors(self) -> dict[str, tuple[float | None, ...]]:
        """Return by source the mean errors of gpuplan, Calculon and the rule of thumb."""
        rule = {
            one.id: one.ideal_step_time_s / USUAL_SHARE
            for one in self.split
            if one.ideal_step_time_s
        }
        others = (predicted_by("calculon"), rule)
        groups = _grouped({one.id: one.source_group for one in self.split}, self.split)
        return {
            name: (error_of(seen), *(error_of(seen, said) for said in others))
            for name, seen in sorted(groups.items())
        }


def compare(
    records: Sequence[RunRecord],
    evaluated: Mapping[Protocol | None, Sequence[Observation]],
    neusight: Mapping[Protocol | None, Sequence[Observation]],
) -> Beside | None:
    """Return the runs that others predict too; None where there are none of a kind.

    Args:
        records: the open records.
        evaluated: the same runs in the same order, without their source and their accelerator.
        neusight: NeuSight's runs that are no open records, without the same.
    """
    known, calculon = predicted_by("neusight"), predicted_by("calculon")
    without_source = [one for one in evaluated["source"] if one.predicted_step_time_s]
    new = (*neusight["accelerator"], *evaluated["accelerator"])
    found = Beside(
        one_gpu=[one for one in (*neusight["source"], *without_source) if one.id in known],
        new_devices={one.id: _ours(one) for one in new if one.predicted_step_time_s},
        split=[one for one in without_source if one.id in calculon],
        sweeps=[
            sweep
            for sweep in find_sweeps(records, evaluated["source"])
            if all(one.id in calculon for one in sweep.tried)
        ],
    )
    return found if found.one_gpu and found.split and found.sweeps else None


def others_part(found: Beside | None) -> str:
    """Return the part of the page; nothing where there is nothing to compare."""
    if found is None:
        return ""
    ours, theirs = found.regret, found.calculon_regret
    return PART.format(
        one_gpu=_one_gpu_table(found),
        calculon=f"{len(found.split):,}",
        calculon_sources=len(found.split_errors()),
        split=_split_table(found),
        sweeps=len(found.sweeps),
        sweep_sources=len({one.source for one in found.sweeps}),
        ours=percent(ours.mean),
        ours_worst=percent(ours.worst),
        theirs=percent(theirs.mean),
        theirs_worst=percent(theirs.worst),
        random=percent(ours.at_random),
    )


def error_of(seen: Sequence[Observation], said: Mapping[str, float] | None = None) -> float | None:
    """Return the mean of |predicted ÷ measured − 1|; None where somebody else predicted none.

    Args:
        seen: the runs.
        said: seconds that somebody else predicts, by id; None: gpuplan's own.
    """
    pairs = [(_ours(one) if said is None else said.get(one.id), _measured(one)) for one in seen]
    errors = [abs(predicted / measured - 1) for predicted, measured in pairs if predicted]
    return fmean(errors) if errors else None


def _regret(sweeps: Sequence[Sweep]) -> Regret:
    by_source = regret_by_source(sweeps)
    return Regret(
        mean=fmean(one.mean for one in by_source),
        worst=max(one.worst.regret() for one in by_source),
        at_random=fmean(one.at_random for one in by_source),
    )


def _one_gpu_table(found: Beside) -> str:
    said = (found.new_devices, *map(predicted_by, ("neusight", "habitat", "roofline")))
    headings = ("device", "runs", "gpuplan", "new device", "NeuSight", "Habitat", "roofline")
    lines = [row_of(headings), row_of(["---", *["--:"] * 6])]
    by_device = _grouped({one.id: one.accelerator for one in found.one_gpu}, found.one_gpu)
    for name, seen in (*sorted(by_device.items()), ("all runs", found.one_gpu)):
        errors = [error_of(seen), *(error_of(seen, one) for one in said)]
        lines.append(row_of([name, str(len(seen)), *map(percent, errors)]))
    return "\n".join(lines)


def _split_table(found: Beside) -> str:
    lines = [row_of(("source", "runs", "gpuplan", "Calculon", "40 % of peak"))]
    lines.append(row_of(["---", *["--:"] * 4]))
    sizes = Counter(one.source_group for one in found.split)
    errors = found.split_errors()
    for name, row in errors.items():
        lines.append(row_of([name, f"{sizes[name]:,}", *map(percent, row)]))
    means = [mean_of(column) for column in zip(*errors.values(), strict=True)]
    lines.append(row_of(["sources alike", f"{len(found.split):,}", *map(percent, means)]))
    return "\n".join(lines)


def mean_of(errors: Sequence[float | None]) -> float | None:
    """Return the mean of the errors that are known; None without one."""
    known = [one for one in errors if one is not None]
    return fmean(known) if known else None


def _grouped(
    group_of: Mapping[str, str], seen: Sequence[Observation]
) -> dict[str, list[Observation]]:
    found: dict[str, list[Observation]] = defaultdict(list)
    for one in seen:
        found[group_of[one.id]].append(one)
    return found


def _ours(seen: Observation) -> float:
    assert seen.predicted_step_time_s is not None
    return seen.predicted_step_time_s.value


def _measured(seen: Observation) -> float:
    assert seen.measured_step_time_s is not None
    return seen.measured_step_time_s
