"""Fit the constants of the step model to published runs, whole and for every held-out fold.

    python benchmarks/fit.py                 print what a fit would give
    python benchmarks/fit.py --write         and write planner/data/constants.toml, held_out.json
    python benchmarks/fit.py --doubts --write     then the interval, from held-out predictions

The fit is a robust (soft-L1) least squares of ln(predicted / measured), drawn to the constants'
priors. Sources weigh alike: a source of many rows counts as `LARGE` rows, and vTrain's 1,440 are
thinned to a fifth by configuration. Held-out constants come from one linearisation at the optimum;
what is reported of them (`gpuplan validate --hold-out`) is computed with the whole model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from evaluation.first_reading import first_readings
from evaluation.fit_interval import LARGE, NOT_FITTED, fitted_doubts
from evaluation.published_records import FITTED_RECORDS
from evaluation.traces import KeptTraces

from gpuplan.api.validation import TimedRun, timed_runs
from gpuplan.planner.constants import Constants, known_constants
from gpuplan.planner.predict.setup import stack_facts
from gpuplan.planner.validation.folds import PROTOCOLS, fold_key

ROOT = Path(__file__).resolve().parent.parent
CONSTANTS = ROOT / "planner/data/constants.toml"
HELD_OUT = ROOT / "planner/data/held_out.json"
THINNED = 1000
"""Sources with more rows keep every fifth configuration."""
RESIDUAL = 0.08
"""Standard deviation of ln(predicted / measured) that the fit takes for granted."""
STEP = 0.04
ROUNDS = 3

Array = np.ndarray


class Problem:
    """Runs, their measured times and weights, and the constants to be found."""

    def __init__(self, runs: Sequence[TimedRun]) -> None:
        counts = Counter(run.source for run in runs)
        self.runs = [
            run
            for run in runs
            if run.source not in NOT_FITTED
            and not run.setup.offload
            and (counts[run.source] < THINNED or _digest(run.configuration) % 5 == 0)
        ]
        sizes = Counter(run.source for run in self.runs)
        self.weights = np.array([min(sizes[r.source], LARGE) / sizes[r.source] for r in self.runs])
        self.log_measured = np.log([run.measured_s for run in self.runs])
        self.known = known_constants()
        self.names = [name for name in self.known if not name.startswith(("doubt.", "interval"))]
        facts = [self.known[name] for name in self.names]
        self.prior = np.log([one.prior for one in facts])
        self.spread = np.array([one.spread for one in facts])
        self.most = np.log([one.most or np.inf for one in facts])
        self.start = np.log([one.value for one in facts])

    def log_seconds(self, theta: Array) -> Array:
        """Return ln(predicted seconds) of every run with these ln(constants)."""
        values = dict(zip(self.names, np.exp(theta).tolist(), strict=True))
        constants = Constants.shipped().replaced(values)
        return np.log([run.with_constants(constants).seconds() for run in self.runs])

    def linearised(self, theta: Array) -> tuple[Array, Array]:
        """Return (ln seconds [R], their derivatives [R, C]) at these ln(constants)."""
        steps = np.where(theta + STEP > self.most, -STEP, STEP)
        points = [
            theta,
            *(theta + step * unit for step, unit in zip(steps, np.eye(len(theta)), strict=True)),
        ]
        with multiprocessing.get_context("fork").Pool(2, _adopt, (self,)) as pool:
            here, *moved = pool.map(_log_seconds, points, chunksize=1)
        return here, np.stack([(m - here) / s for m, s in zip(moved, steps, strict=True)], axis=1)

    def solved(self, here: Array, slopes: Array, theta: Array, use: Array) -> Array:
        """Return the ln(constants) that fit the runs in `use` best, by the linear model."""
        weights = self.weights * use
        found = theta
        for _ in range(12):
            residual = (here + slopes @ (found - theta) - self.log_measured) / RESIDUAL
            robust = weights / np.sqrt(1 + residual**2)
            curvature = (slopes.T * robust) @ slopes / RESIDUAL**2 + np.diag(1 / self.spread**2)
            pull = -(slopes.T * robust) @ (here - slopes @ theta - self.log_measured)
            pull = pull / RESIDUAL**2 + self.prior / self.spread**2
            found = np.minimum(np.linalg.solve(curvature, pull), self.most)
        return found


_problem: Problem


def _adopt(problem: Problem) -> None:
    global _problem
    _problem = problem


def _log_seconds(theta: Array) -> Array:
    return _problem.log_seconds(theta)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def fit(problem: Problem, rounds: int) -> tuple[Array, dict[str, dict[str, Array]]]:
    """Return ln(constants) fitted to everything, and to everything but each fold."""
    theta = problem.start
    everything = np.ones(len(problem.runs))
    for _ in range(rounds):
        here, slopes = problem.linearised(theta)
        theta = problem.solved(here, slopes, theta, everything)
        print(f"macro MAPE {macro(problem, theta):.2%}", flush=True)
    here, slopes = problem.linearised(theta)
    folds: dict[str, dict[str, Array]] = {}
    for protocol in PROTOCOLS:
        keys = np.array(
            [
                fold_key(
                    protocol,
                    configuration=run.configuration,
                    source=run.source,
                    accelerator=run.accelerator,
                )
                for run in problem.runs
            ]
        )
        folds[protocol] = {
            key: problem.solved(here, slopes, theta, keys != key) for key in sorted(set(keys))
        }
    return theta, folds


def macro(problem: Problem, theta: Array) -> float:
    """Return the mean over sources of the mean absolute relative error."""
    errors: dict[str, list[float]] = defaultdict(list)
    predicted = problem.log_seconds(theta)
    for run, log_ratio in zip(problem.runs, predicted - problem.log_measured, strict=True):
        errors[run.source].append(abs(np.exp(log_ratio) - 1))
    return float(np.mean([np.mean(values) for values in errors.values()]))


def write(problem: Problem, theta: Array, folds: dict[str, dict[str, Array]]) -> None:
    """Write the fitted values into the table of constants, and those of all folds beside it."""
    write_constants(dict(zip(problem.names, np.exp(theta).tolist(), strict=True)))
    constants = {
        protocol: {key: _rounded(problem.names, found) for key, found in of_key.items()}
        for protocol, of_key in folds.items()
    }
    record: dict[str, Any] = {
        "comment": "Constants fitted without each fold; written by benchmarks/fit.py.",
        "constants": constants,
        **evidence(problem.runs),
    }
    HELD_OUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def evidence(runs: Sequence[TimedRun]) -> dict[str, Any]:
    """Return of which sources runs are, by stack, architecture and accelerator."""
    sources: dict[str, dict[str, dict[str, set[str]]]] = {}
    for run in runs:
        stack = stack_facts(run.setup, run.cache.constants).name
        device = run.site.accelerator
        of_devices = sources.setdefault(stack, {}).setdefault(device.arch, {})
        of_devices.setdefault(device.name, set()).add(run.source)
    fitted = {
        stack: {
            arch: {name: sorted(found) for name, found in sorted(of_devices.items())}
            for arch, of_devices in sorted(of_arch.items())
        }
        for stack, of_arch in sorted(sources.items())
    }
    return {"fitted": fitted}


def write_constants(values: dict[str, float]) -> None:
    """Write these values into the table of constants."""
    text = CONSTANTS.read_text(encoding="utf-8")
    for name, value in values.items():
        pattern = rf"(\[{re.escape(name)}\]\nvalue = )\S+"
        text, found = re.subn(pattern, rf"\g<1>{value:.4g}", text)
        assert found == 1, name
    CONSTANTS.write_text(text, encoding="utf-8")


def _rounded(names: Sequence[str], theta: Array) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in zip(names, np.exp(theta), strict=True)}


def main() -> None:
    """Fit, print the constants beside their priors, and write them when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="write the constants")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="linearisations")
    parser.add_argument("--doubts", action="store_true", help="fit the interval instead")
    options = parser.parse_args()
    runs = timed_runs(FITTED_RECORDS, profiler=KeptTraces().profiles)
    if options.doubts:
        with first_readings() as paths:
            first = timed_runs(paths, profiler=KeptTraces().profiles)
        values = fitted_doubts(runs, first)
        for name, value in values.items():
            print(f"{name:30} {value:10.4g}")
        if options.write:
            write_constants(values)
        return
    problem = Problem(runs)
    theta, folds = fit(problem, options.rounds)
    for name, value in zip(problem.names, np.exp(theta), strict=True):
        one = problem.known[name]
        away = np.log(value / one.prior) / one.spread
        print(f"{name:30} {value:10.4g}  prior {one.prior:10.4g}  {away:+.1f} spreads")
    if options.write:
        write(problem, theta, folds)


if __name__ == "__main__":
    main()
