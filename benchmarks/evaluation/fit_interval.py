"""Fit the interval: what can be wrong with a prediction, and how much each of it weighs.

The doubts of known software are fitted to runs that are predicted without their source and without
their device. What nobody compared with the software that ran (`doubt.unchecked`) is fitted to two
sets, of which the interval covers on the mean what it should: the records as they were first
written down, predicted by today's code without their source, and what the code of the day before
said of sources that it had not seen (those of which it had no record). The first is too kind, for
what was learned of those sources is in the code; the second too hard, for it has learned since.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import brentq, minimize

from gpuplan.api.validation import TimedRun
from gpuplan.planner.constants import known_constants
from gpuplan.planner.validation.folds import PROTOCOLS, Protocol
from gpuplan.profiles.records import read_records

from .errors.day_before import kept_predictions
from .groups import LARGE_ENOUGH
from .published_records import FIRST_RECORDS

Array = np.ndarray

NOT_FITTED = frozenset({"sailor", "qwen-finetune"})
"""Sources whose records leave open what decides the step (precision, attention, recompute), or
whose steps stand on a floor of their trainer: Qwen's take 1.0 to 2.2 s whatever the sequence.

Runs with parts in host memory are left out as well."""
LARGE = 12
"""Runs of a source that weigh as so many, and no more."""
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


class Doubts:
    """What is left of held-out runs, and what was doubtful about each."""

    def __init__(
        self,
        runs: Sequence[TimedRun],
        protocol: Protocol,
        *,
        without: frozenset[str] = NOT_FITTED,
        said_s: Mapping[str, float] | None = None,
    ) -> None:
        """Predict runs without themselves.

        Args:
            runs: published ones.
            protocol: what of each is left out.
            without: sources that are left out as a whole.
            said_s: step times by id that were predicted at another time; other runs are left out.
        """
        self.names = [n for n in known_constants() if n.startswith("doubt.") and n != UNCHECKED]
        self.runs = [
            run
            for run in runs
            if run.source not in without
            and not run.setup.offload
            and (said_s is None or run.id in said_s)
        ]
        unseen = [run.held_out(protocol) for run in self.runs]
        said = None if said_s is None else [said_s[run.id] for run in self.runs]
        seconds = np.array([run.seconds() for run in unseen] if said is None else said)
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


def fitted_doubts(runs: Sequence[TimedRun], first: Sequence[TimedRun]) -> dict[str, float]:
    """Return the constants of the interval, from runs without their source or their device.

    Args:
        runs: as their records are today.
        first: the same, as they were first written down.
    """
    held_out = {protocol: Doubts(runs, protocol) for protocol in PROTOCOLS}
    found = weighed_doubts([held_out["source"], held_out["accelerator"]])
    # With the sources that no fit explains: whoever plans a run does not know that theirs is none.
    unread = Doubts(first, "source", without=frozenset())
    said_s = {name: one.predicted_s for name, one in kept_predictions().items()}
    known_then = {record.source_group for path in FIRST_RECORDS for record in read_records(path)}
    day_before = Doubts(first, "source", without=frozenset(known_then), said_s=said_s)
    q = held_out["source"].quantile(found)
    found[UNCHECKED] = _covering((unread, day_before), found, q)
    sets = {**held_out, "first readings": unread, "the day before": day_before}
    for name, doubts in sets.items():
        print(f"{name}: {doubts.coverage(found, q)}")
        print(f"{name}: {doubts.covered(found, q):.1%} covered in the mean over sources")
    return {**found, "interval": q}


def _covering(sets: Sequence[Doubts], constants: dict[str, float], quantile: float) -> float:
    """Return the doubt of unchecked software with which the sets are covered as they should be.

    The sets weigh alike.
    """

    def beyond(value: float) -> float:
        tried = {**constants, UNCHECKED: value}
        return float(np.mean([one.covered(tried, quantile) for one in sets])) - COVERAGE

    if beyond(0.0) >= 0:
        return 0.0
    found = brentq(beyond, 0.0, 1.0, xtol=1e-4)
    assert isinstance(found, float)
    return found
