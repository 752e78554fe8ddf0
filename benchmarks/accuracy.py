"""Evaluate the predictions on the open run records: docs/accuracy.md and the plots in docs/img.

Run it with `make accuracy`, or name record files of your own:
    .venv/bin/python benchmarks/accuracy.py runs.jsonl --out /tmp/accuracy.md

`--only-programmes` makes the part on whole programmes anew, in seconds, and leaves the others.
`--speed` also measures how long the evaluation takes, which needs minutes; else the last figures
are kept.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from pathlib import Path

from evaluation.errors.compute_share import compute_shares
from evaluation.errors.trends import draw_trends, find_trends
from evaluation.errors.unread import MORE_JOBS, OTHER_KINDS, UNSEEN, USUAL_JOBS, readings
from evaluation.errors.unread_fits import UNSEEN_FITS
from evaluation.errors.unread_memory import UNSEEN_MEMORY
from evaluation.first_reading import first_readings
from evaluation.groups import split_groups
from evaluation.layouts.regret import find_sweeps, on_other_networks
from evaluation.layouts.unread_layouts import UNSEEN_LAYOUTS
from evaluation.others.step_times import NEUSIGHT_RUNS
from evaluation.page import PLOTS, page
from evaluation.programmes import programmes
from evaluation.programmes_part import with_programmes
from evaluation.programmes_unseen import UNSEEN_JOBS, UNSEEN_PROGRAMMES
from evaluation.published_records import OPEN_RECORDS
from evaluation.scatter import draw
from evaluation.speed import kept_speed, measure_speed
from evaluation.traces import KeptTraces
from evaluation.truths import known_truths

from gpuplan.api.validation import RecordedRuns, timed_runs
from gpuplan.planner.validation.errors import Observation
from gpuplan.planner.validation.folds import PROTOCOLS, Protocol

ROOT = Path(__file__).parents[1]


def main() -> None:
    options = parse_options()
    started_s = time.perf_counter()
    traces = KeptTraces()
    if options.only_programmes:
        known = options.out.read_text(encoding="utf-8")
        text = with_programmes(known, programmes(traces.profiles))
        options.out.write_text(text, encoding="utf-8")
        return
    runs = RecordedRuns(options.runs, profiler=traces.profiles)
    print(f"{len(runs.records)} records: {time.perf_counter() - started_s:.1f} s", flush=True)
    evaluated = evaluate(runs)
    for protocol in PROTOCOLS:
        picture = options.out.parent / "img" / f"accuracy-{protocol}.svg"
        draw(evaluated[protocol], PLOTS[protocol], picture)
    trends = find_trends(runs.records, evaluated["source"], split_groups(runs.records))
    if trends:
        draw_trends(trends, options.out.parent / "img" / "accuracy-trends.svg")
    speed = measure_speed(options.runs) if options.speed else kept_speed()
    sweeps = find_sweeps(runs.records, evaluated["configuration"])
    on_networks = on_other_networks(runs, sweeps, "configuration")
    with first_readings() as paths:
        first = readings(timed_runs(paths, profiler=traces.profiles))
    unseen, others, of_memory, usual, layouts, fits, more = (
        RecordedRuns([path], profiler=traces.profiles).observations()
        for path in (
            *(UNSEEN, OTHER_KINDS, UNSEEN_MEMORY, USUAL_JOBS),
            *(UNSEEN_LAYOUTS, UNSEEN_FITS, MORE_JOBS),
        )
    )
    neusight = RecordedRuns([NEUSIGHT_RUNS], profiler=traces.profiles)
    text = page(
        evaluated,
        runs.records,
        known_truths(traces.profiles),
        speed,
        on_networks,
        programmes(traces.profiles),
        compute_shares(runs.timed(), evaluated[None]),
        first,
        unseen,
        others,
        of_memory,
        programmes(traces.profiles, UNSEEN_PROGRAMMES),
        usual,
        layouts,
        fits,
        programmes(traces.profiles, UNSEEN_JOBS, start_s=0.0),
        more,
        {protocol: neusight.observations(protocol) for protocol in ("source", "accelerator")},
    )
    options.out.write_text(text, encoding="utf-8")
    print(f"wrote {options.out}")
    if options.runs == list(OPEN_RECORDS):
        traces.keep()


def evaluate(runs: RecordedRuns) -> dict[Protocol | None, list[Observation]]:
    """Return the observations in sample and under every protocol.

    The first evaluation keeps every run's memory, which the others share; these run side by side.
    """
    global _runs
    _runs = runs
    in_sample = _observations(None)
    with multiprocessing.get_context("fork").Pool(len(PROTOCOLS)) as pool:
        held_out = pool.map(_observations, PROTOCOLS, chunksize=1)
    return {None: in_sample, **dict(zip(PROTOCOLS, held_out, strict=True))}


_runs: RecordedRuns
"""What child processes inherit."""


def _observations(protocol: Protocol | None) -> list[Observation]:
    started_s = time.perf_counter()
    found = list(_runs.observations(protocol))
    print(f"{protocol or 'in sample'}: {time.perf_counter() - started_s:.1f} s", flush=True)
    return found


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("runs", nargs="*", type=Path, default=list(OPEN_RECORDS))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "accuracy.md")
    parser.add_argument("--speed", action="store_true", help="measure how long this takes")
    parser.add_argument(
        "--only-programmes", action="store_true", help="make only the part on whole programmes anew"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
