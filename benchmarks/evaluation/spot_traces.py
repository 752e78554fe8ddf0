"""How often a run on N spot machines of one zone is stopped: as often as one machine, or N times?

    python -m benchmarks.evaluation.spot_traces TRACES.jsonl

Each line of the file is a recorded trace of one zone: `trace` (its name), `gap_seconds` between two
samples, and `run_lengths`, pairs of how many of the machines that were asked for were there and in
how many samples running. From traces of several machines it takes how often one of them goes, and
compares the two predictions with how often all of them together were no longer there, and with a
run of a day that is simulated on the trace. From traces of several zones at one time it takes
whether their machines go together.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from gpuplan.catalog.units import SECONDS_PER_HOUR
from gpuplan.planner.goodput.restarts import Conditions, elapsed
from gpuplan.planner.goodput.simulation import Runs, simulate
from gpuplan.planner.goodput.stop_sources import TraceStops

TOGETHER_S = 180.0
WORK_S, PARTS = 24 * SECONDS_PER_HOUR, 48
STALL_S, RESTART_S = 10.0, 700.0
"""A run of a day with a checkpoint every half hour; the restart of `data/startup.toml`."""
RUNS = 400


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Machines that were there, over time, in one zone."""

    name: str
    gap_s: float
    runs: tuple[tuple[int, int], ...]
    """(machines, samples)."""

    @property
    def machines(self) -> int:
        """Machines that were asked for."""
        return max(value for value, _ in self.runs)

    def losses(self) -> Iterator[tuple[float, int]]:
        """Yield when machines went, and how many."""
        at_s = 0.0
        for (before, samples), (after, _) in pairwise(self.runs):
            at_s += samples * self.gap_s
            if after < before:
                yield at_s, before - after

    def stops(self, machines: int) -> list[float]:
        """Return when there no longer were so many machines."""
        at_s, found = 0.0, []
        for (before, samples), (after, _) in pairwise(self.runs):
            at_s += samples * self.gap_s
            if before >= machines > after:
                found.append(at_s)
        return found

    def hours(self, machines: int) -> float:
        """Return for how long there were so many."""
        samples = sum(samples for value, samples in self.runs if value >= machines)
        return samples * self.gap_s / SECONDS_PER_HOUR

    def machine_hours(self) -> float:
        """Return the hours of all machines."""
        return sum(v * samples for v, samples in self.runs) * self.gap_s / SECONDS_PER_HOUR


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    traces = read(parser.parse_args().file)
    several = [one for one in traces if one.machines > 1]
    print("| trace | machines | of one, an hour | x machines | seen | seen / one | seen / N·one |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for trace in several:
        print(hazard_row(trace))
    print("\n| trace | machines lost together | a day's run, h billed | one per zone | λ·N |")
    print("|---|---:|---:|---:|---:|")
    for trace in several:
        print(run_row(trace))
    print("\n| zones at one time | stops | within 3 min of another zone's | by chance |")
    print("|---|---:|---:|---:|")
    for name, group in sorted(at_one_time(traces).items()):
        print(zones_row(name, group))


def read(path: Path) -> list[Trace]:
    """Return the traces of a file."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [
        Trace(
            name=row["trace"],
            gap_s=float(row["gap_seconds"]),
            runs=tuple((int(value), int(samples)) for value, samples in row["run_lengths"]),
        )
        for row in rows
    ]


def of_one_per_hour(trace: Trace) -> float:
    """Return how often one machine goes: losses over machine-hours."""
    return sum(count for _, count in trace.losses()) / trace.machine_hours()


def hazard_row(trace: Trace) -> str:
    """Return how often all machines together were no longer there, beside both predictions."""
    count, one = trace.machines, of_one_per_hour(trace)
    seen = len(trace.stops(count)) / trace.hours(count)
    return (
        f"| {short(trace)} | {count} | {one:.3f} | {count * one:.2f} | {seen:.3f}"
        f" | {seen / one:.2f} | {seen / (count * one):.2f} |"
    )


def run_row(trace: Trace) -> str:
    """Return what a run of a day on all machines is billed, simulated and by both predictions."""
    count, one = trace.machines, of_one_per_hour(trace)
    times = [at_s for at_s, lost in trace.losses() for _ in range(lost)]
    together = np.mean([times.count(at) > 1 or _near(times, at) for at in times])
    rng = np.random.default_rng(0)
    length_s = sum(samples for _, samples in trace.runs) * trace.gap_s
    full = np.full(RUNS, 1.0)
    runs = Runs(
        work_s=WORK_S * full,
        segments=PARTS * full,
        stall_s=STALL_S * full,
        restart_s=RESTART_S * full,
    )
    stopping = TraceStops(trace.runs, trace.gap_s, count, rng.uniform(0, length_s, RUNS))
    seen_h = simulate(runs, stopping, rng).billed_s.mean() / SECONDS_PER_HOUR
    predicted = [_billed_h(per_hour) for per_hour in (one, count * one)]
    return (
        f"| {short(trace)} | {together:.0%} | {seen_h:.0f} | {predicted[0]:.0f}"
        f" | {predicted[1]:.3g} |"
    )


def at_one_time(traces: Sequence[Trace]) -> dict[str, list[Trace]]:
    """Return the traces of one machine each that were recorded together, by folder and type."""
    groups: dict[str, list[Trace]] = defaultdict(list)
    for one in traces:
        if one.machines == 1:
            folder, _, file = one.name.rpartition("/")
            groups[f"{folder} {file.partition('_')[2].removesuffix('.json')}"].append(one)
    return {name: group for name, group in groups.items() if len(group) > 1}


def zones_row(name: str, group: Sequence[Trace]) -> str:
    """Return how often zones stop together, and how often they would if they were independent."""
    near = chance = total = 0.0
    for one in group:
        mine = one.stops(1)
        others = [np.array(other.stops(1)) for other in group if other is not one]
        length_s = sum(samples for _, samples in one.runs) * one.gap_s
        rate_per_s = sum(len(times) for times in others) / length_s
        # Two samples differ by whole gaps: those up to 3 minutes, either way, and none.
        window_s = (2 * int(TOGETHER_S / one.gap_s) + 1) * one.gap_s
        chance += len(mine) * -np.expm1(-rate_per_s * window_s)
        near += sum(any((abs(times - at) <= TOGETHER_S).any() for times in others) for at in mine)
        total += len(mine)
    if not total:
        return f"| {name} ({len(group)}) | 0 | | |"
    return f"| {name} ({len(group)}) | {total:.0f} | {near / total:.0%} | {chance / total:.0%} |"


def short(trace: Trace) -> str:
    """Return the name of a trace without what all share."""
    return trace.name.removesuffix(".json")


def _near(times: Sequence[float], at_s: float) -> bool:
    return any(0 < abs(one - at_s) <= TOGETHER_S for one in times)


def _billed_h(per_hour: float) -> float:
    of = Conditions(
        rate_per_s=per_hour / SECONDS_PER_HOUR, stall_s=STALL_S, restart_s=RESTART_S, wait_s=0.0
    )
    return float(elapsed(WORK_S, PARTS, of).mean_s) / SECONDS_PER_HOUR


if __name__ == "__main__":
    main()
