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
from evaluation.groups import LARGE_ENOUGH
from evaluation.published_records import FITTED_RECORDS
from evaluation.traces import KeptTraces
from scipy.optimize import brentq, minimize

from gpuplan.api.validation import TimedRun, timed_runs
from gpuplan.planner.constants import Constants, known_constants
from gpuplan.planner.predict.setup import stack_facts
from gpuplan.planner.validation.folds import PROTOCOLS, Protocol, fold_key

ROOT = Path(__file__).resolve().parent.parent
CONSTANTS = ROOT / "planner/data/constants.toml"
HELD_OUT = ROOT / "planner/data/held_out.json"
NOT_FITTED = frozenset({"sailor", "qwen-finetune"})
"""Sources whose records leave open what decides the step (precision, attention, recompute), or
whose steps stand on a floor of their trainer: Qwen's take 1.0 to 2.2 s whatever the sequence.

Runs with parts in host memory are left out as well."""
THINNED = 1000
"""Sources with more rows keep every fifth configuration."""
LARGE = 12
NEW_DEVICE = 0.15
"""Weight of a device that is left out beside a source that is, where widths are fitted: most
devices were used by one source, whose runs on other devices were seen."""
COVERAGE = 0.8
UNCHECKED = "doubt.unchecked"
NORMAL_80 = 1.2816
"""Half of a central 80 % interval of a normal distribution, in standard deviations."""
SMOOTHED = 0.005
"""How far from the end of an interval a run begins to count as outside, of ln(seconds)."""
SCORE_SCALE = 0.03
"""How much of a score, of ln(seconds), moves a constant from its prior as a spread does."""
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


class Doubts:
    """What is left of held-out runs, and what was doubtful about each."""

    def __init__(
        self,
        runs: Sequence[TimedRun],
        protocol: Protocol,
        *,
        without: frozenset[str] = NOT_FITTED,
    ) -> None:
        self.names = [n for n in known_constants() if n.startswith("doubt.") and n != UNCHECKED]
        self.runs = [r for r in runs if r.source not in without and not r.setup.offload]
        unseen = [run.held_out(protocol) for run in self.runs]
        seconds = np.array([run.seconds() for run in unseen])
        self.residuals = abs(np.log(seconds / [run.measured_s for run in self.runs]))
        found = [run.doubts() for run in unseen]
        names = [name.removeprefix("doubt.") for name in self.names]
        self.sizes = np.array([[sizes.get(name, 0.0) for name in names] for sizes in found])
        self.unchecked = np.array([sizes["unchecked"] for sizes in found])
        by_device = protocol == "accelerator"
        self.weights = _device_weights(self.runs) if by_device else _source_weights(self.runs)

    def quantile(self, constants: dict[str, float]) -> float:
        """Return the q of exp(q sigma) that covers what it should of runs whose software is known.

        Sources of few runs do not count.
        """
        scores = self.residuals / self.sigma({**constants, UNCHECKED: 0.0})
        order = np.argsort(scores)
        weights = self._weights_of_large() * (1 - self.unchecked)
        reached = np.cumsum(weights[order]) / weights.sum()
        return float(scores[order][np.searchsorted(reached, COVERAGE)])

    def sigma(self, constants: dict[str, float]) -> Array:
        """Return the doubt of every run."""
        weighs = np.array([constants[name] for name in self.names])
        return np.sqrt(self.sizes**2 @ weighs**2 + (constants[UNCHECKED] * self.unchecked) ** 2)

    def covered(self, constants: dict[str, float], quantile: float) -> float:
        """Return the share of runs inside the interval, in sources of enough runs."""
        inside = self.residuals <= quantile * self.sigma(constants)
        return float(np.average(inside, weights=self._weights_of_large()))

    def _weights_of_large(self) -> Array:
        counts = Counter(run.source for run in self.runs)
        return self.weights * [counts[run.source] >= LARGE_ENOUGH for run in self.runs]

    def coverage(self, constants: dict[str, float], quantile: float) -> dict[str, str]:
        """Return coverage and mean width of every source, device and architecture, as text."""
        half = quantile * self.sigma(constants)
        groups: dict[str, list[int]] = defaultdict(list)
        for row, run in enumerate(self.runs):
            for group in (run.source, run.accelerator, run.site.accelerator.arch):
                groups[group].append(row)
        return {
            group: f"{np.mean(self.residuals[rows] <= half[rows]):.0%} of {len(rows)},"
            f" x/ {np.exp(half[rows]).mean():.2f}"
            for group, rows in sorted(groups.items())
            if len(rows) >= LARGE
        }


def _source_weights(runs: Sequence[TimedRun]) -> Array:
    """Return weights with which sources count alike."""
    counts = Counter(run.source for run in runs)
    return np.array([LARGE / counts[run.source] for run in runs])


def _device_weights(runs: Sequence[TimedRun]) -> Array:
    """Return weights with which devices count alike, and on each of them its sources."""
    pairs = Counter((run.accelerator, run.source) for run in runs)
    sources = Counter(accelerator for accelerator, _ in pairs)
    shares = [sources[run.accelerator] * pairs[run.accelerator, run.source] for run in runs]
    return NEW_DEVICE * LARGE / np.array(shares)


def weighed_doubts(seen: Sequence[Doubts]) -> dict[str, float]:
    """Return the constants of the interval with the least interval score.

    The score (Gneiting and Raftery 2007) of an interval is its width, and what a run lies outside
    of it over half of the chance that it may: least where it covers what it should under every
    stack, device and kind of model. It is smoothed, and added to the priors.
    """
    known, names = known_constants(), seen[0].names
    prior = np.log([known[name].prior for name in names])
    spread = np.array([known[name].spread for name in names])
    squares = np.concatenate([one.sizes for one in seen]) ** 2
    residuals = np.concatenate([one.residuals for one in seen])
    weights = np.concatenate([one.weights for one in seen])

    def score(theta: Array) -> tuple[float, Array]:
        parts = np.exp(2 * theta)
        half = NORMAL_80 * np.sqrt(squares @ parts)
        outside = (residuals - half) / SMOOTHED
        value = COVERAGE * (residuals - half) + SMOOTHED * np.logaddexp(0, -outside)
        slope = COVERAGE - 1 / (1 + np.exp(np.clip(outside, -50, 50)))
        pull = (theta - prior) / spread**2
        gradient = -((weights * slope / half) @ squares) * parts * NORMAL_80**2 / SCORE_SCALE
        total = float(weights @ value / SCORE_SCALE + pull @ (theta - prior) / 2)
        return total, gradient + pull

    found = minimize(score, prior, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    return dict(zip(names, np.exp(found).tolist(), strict=True))


def fit_doubts(runs: Sequence[TimedRun], first: Sequence[TimedRun]) -> dict[str, float]:
    """Return the constants of the interval, from runs without their source or their device.

    Args:
        runs: as their records are today.
        first: the same, as they were first written down: what is left of them is more by what
            nobody compared with the software that ran.
    """
    held_out = {protocol: Doubts(runs, protocol) for protocol in PROTOCOLS}
    found = weighed_doubts([held_out["source"], held_out["accelerator"]])
    # With the sources that no fit explains: whoever plans a run does not know that theirs is none.
    unread = Doubts(first, "source", without=frozenset())
    q = held_out["source"].quantile(found)
    found[UNCHECKED] = _covering(unread, found, q)
    for protocol, doubts in {**held_out, "first readings": unread}.items():
        print(f"{protocol}: {doubts.coverage(found, q)}")
    print(f"first readings: {unread.covered(found, q):.1%} covered")
    return {**found, "interval": q}


def _covering(unread: Doubts, constants: dict[str, float], quantile: float) -> float:
    """Return the doubt of unchecked software with which the interval covers what it should."""

    def beyond(value: float) -> float:
        return unread.covered({**constants, UNCHECKED: value}, quantile) - COVERAGE

    if beyond(0.0) >= 0:
        return 0.0
    found = brentq(beyond, 0.0, 1.0, xtol=1e-4)
    assert isinstance(found, float)
    return found


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
        values = fit_doubts(runs, first)
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
