"""Regret: how much slower the setup that is predicted to be fastest was than the fastest measured.

A sweep is what one source measured of one model, batch, machine and software in several setups. An
error that all of its setups share costs nobody anything: only the order of the predictions counts.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, pstdev

from gpuplan.api.validation import RecordedRuns
from gpuplan.planner.validation.errors import Observation
from gpuplan.planner.validation.folds import Protocol
from gpuplan.profiles.records import RunRecord

FEWEST_SETUPS = 3
SHORT_LIST = 3
"""Setups that somebody would try of those predicted to be fastest."""
MEAN_TARGET = 0.03
WORST_TARGET = 0.20
SHORT_LIST_TARGET = 0.01
"""Of every source: mean regret, largest regret, mean regret of the best of the short list."""
NEAR_BEST = 2.0
"""Setups that take longer than so many times the best are nobody's choice."""
NETWORKS = (0.5, 2.0)
"""Rates between nodes, as multiples of what the records state."""
SAME_IN_A_SWEEP = (
    *("source_group", "model", "params", "global_batch"),
    *("accelerator", "accelerators", "per_node", "inter_node_gbit_s", "precision"),
    *("stack", "date", "attention", "compile", "optimizer", "offload", "features"),
)
"""Fields of a record: the question, and the software that answered it. Layout, micro-batch and
recompute are left to choose."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One setup of a sweep: what it took, and what was predicted."""

    id: str
    """The run's record; of a setup that was measured repeatedly, the first."""
    name: str
    measured_s: float
    """Seconds of a step; the median where the setup was measured repeatedly."""
    predicted_s: float


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Setups between which somebody could have chosen."""

    source: str
    question: str
    """Model, machine and batch, for a reader."""
    tried: tuple[Tried, ...]

    @property
    def fastest(self) -> Tried:
        """The setup that was measured to be fastest."""
        return min(self.tried, key=lambda one: one.measured_s)

    def short_list(self, length: int) -> list[Tried]:
        """Return the setups predicted to be fastest; equal predictions: the slower one first."""
        return sorted(self.tried, key=lambda one: (one.predicted_s, -one.measured_s))[:length]

    def regret(self, length: int = 1) -> float:
        """Return (best of the `length` setups predicted to be fastest) ÷ fastest − 1, measured."""
        best_s = min(one.measured_s for one in self.short_list(length))
        return best_s / self.fastest.measured_s - 1

    @property
    def regret_at_random(self) -> float:
        """The mean regret of somebody who takes any of the setups."""
        return fmean(one.measured_s for one in self.tried) / self.fastest.measured_s - 1

    @property
    def log_spread(self) -> float:
        """The standard deviation of ln(measured time) of the setups within twice the best."""
        best_s = self.fastest.measured_s
        near = [one.measured_s for one in self.tried if one.measured_s <= NEAR_BEST * best_s]
        return pstdev(math.log(one_s) for one_s in near)

    def with_predictions(self, seconds: Mapping[str, float]) -> Sweep:
        """Return the sweep with other predictions, by id; what has none keeps its own."""
        tried = (
            replace(one, predicted_s=seconds.get(one.id, one.predicted_s)) for one in self.tried
        )
        return replace(self, tried=tuple(tried))


@dataclass(frozen=True, kw_only=True)
class SourceRegret:
    """The regrets of one source, as ratios (0.05 is 5 %)."""

    source: str
    n: int
    """Sweeps."""
    mean: float
    worst: Sweep
    short_list_mean: float | None
    """Mean regret of somebody who tries the short list and keeps the fastest, in the sweeps that
    are longer than that list; None without one."""
    at_random: float
    """Mean regret of somebody who takes any of the setups."""


def find_sweeps(records: Sequence[RunRecord], observations: Sequence[Observation]) -> list[Sweep]:
    """Return the sweeps among the runs that were timed and predicted, in the order of the records.

    Args:
        records: what was run; those that do not state their global batch are in no sweep.
        observations: the same runs in the same order, predicted under some protocol.
    """
    found: dict[str, list[tuple[RunRecord, Observation]]] = defaultdict(list)
    for record, seen in zip(records, observations, strict=True):
        if record.global_batch and seen.measured_step_time_s and seen.predicted_step_time_s:
            found[_text_of(record, SAME_IN_A_SWEEP)].append((record, seen))
    sweeps = (
        Sweep(source=runs[0][0].source_group, question=_question(runs[0][0]), tried=_tried(runs))
        for runs in found.values()
    )
    return [sweep for sweep in sweeps if len(sweep.tried) >= FEWEST_SETUPS]


def regret_by_source(sweeps: Iterable[Sweep]) -> list[SourceRegret]:
    """Return the regrets of every source that has sweeps, by name."""
    found: dict[str, list[Sweep]] = defaultdict(list)
    for sweep in sweeps:
        found[sweep.source].append(sweep)
    return [_source_regret(source, of_source) for source, of_source in sorted(found.items())]


def log_spread(sweeps: Iterable[Sweep]) -> float:
    """Return how far setups that somebody may choose spread: the mean over sources, of sweeps."""
    found: dict[str, list[float]] = defaultdict(list)
    for sweep in sweeps:
        found[sweep.source].append(sweep.log_spread)
    return fmean(fmean(of_source) for of_source in found.values())


def _source_regret(source: str, sweeps: Sequence[Sweep]) -> SourceRegret:
    listed = [sweep.regret(SHORT_LIST) for sweep in sweeps if len(sweep.tried) > SHORT_LIST]
    return SourceRegret(
        source=source,
        n=len(sweeps),
        mean=fmean(sweep.regret() for sweep in sweeps),
        worst=max(sweeps, key=Sweep.regret),
        short_list_mean=fmean(listed) if listed else None,
        at_random=fmean(sweep.regret_at_random for sweep in sweeps),
    )


def on_other_networks(
    runs: RecordedRuns, sweeps: Iterable[Sweep], hold_out: Protocol
) -> dict[float, list[Sweep]]:
    """Return the sweeps on several nodes with predictions for other rates between the nodes.

    Returns:
        By multiple of the stated rate: `NETWORKS`, and 1 for the rate as it is.
    """
    sweeps = list(sweeps)
    timed = runs.timed({one.id for sweep in sweeps for one in sweep.tried})
    on_nodes = {run.id: run.held_out(hold_out) for run in timed if run.site.nodes > 1}
    between = [sweep for sweep in sweeps if all(one.id in on_nodes for one in sweep.tried)]
    return {
        multiple: [
            sweep.with_predictions(
                {one.id: on_nodes[one.id].on_network(multiple).seconds() for one in sweep.tried}
            )
            for sweep in between
        ]
        for multiple in sorted((1.0, *NETWORKS))
    }


def _tried(runs: Iterable[tuple[RunRecord, Observation]]) -> tuple[Tried, ...]:
    """Return the setups of one sweep, each once."""
    setups: dict[str, list[tuple[RunRecord, Observation]]] = defaultdict(list)
    for record, seen in runs:
        setups[_text_of(record, ("layout", "micro_batch", "recompute"))].append((record, seen))
    return tuple(
        Tried(
            id=repeats[0][0].id,
            name=_setup_name(repeats[0][0]),
            measured_s=median(seen.measured_step_time_s or 0.0 for _, seen in repeats),
            predicted_s=median(
                seen.predicted_step_time_s.value
                for _, seen in repeats
                if seen.predicted_step_time_s
            ),
        )
        for repeats in setups.values()
    )


def _text_of(record: RunRecord, fields: Iterable[str]) -> str:
    return json.dumps(record.model_dump(mode="json", include=set(fields)), sort_keys=True)


def _question(record: RunRecord) -> str:
    model = record.model_name or record.model
    machine = f"{record.accelerators} × {record.accelerator}"
    return f"{model}, {machine}, batch {record.global_batch:,}"


def _setup_name(record: RunRecord) -> str:
    """Return the layout as `--layout` reads it, as far as it is stated, then what else differs."""
    stated = record.layout
    parts = [f"dp{stated.data or 1}"]
    parts += [f"zero{stated.zero_stage}"] if stated.zero_stage else []
    if stated.zero_stage and stated.shard and stated.shard != stated.data:
        parts.append(f"shard{stated.shard}")
    degrees = {"tp": "tensor", "pp": "pipeline", "vpp": "virtual_stages"}
    degrees |= {"cp": "context", "ep": "expert"}
    for short, name in degrees.items():
        parts += [f"{short}{degree}"] if (degree := getattr(stated, name) or 1) > 1 else []
    recompute = f", recompute {record.recompute}" if record.recompute else ""
    return f"{'.'.join(parts)}, micro-batch {record.micro_batch or '?'}{recompute}"
