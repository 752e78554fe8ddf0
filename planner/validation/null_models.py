"""The null models that a prediction must beat: they know FLOPs and peak, and nothing else.

"50 % of the peak, always", and the best constant fraction (hardware FLOPs utilisation, HFU), fitted
to runs other than those being predicted. Both predict `hardware FLOPs ÷ peak ÷ fraction`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import NamedTuple

FIXED_HFU = 0.5
FOLDS = 5


class Utilisation(NamedTuple):
    """What a null model sees of one run."""

    configuration: str
    """Runs of one configuration never stand on both sides of a fold."""
    hfu: float
    """Measured: hardware FLOPs of one accelerator ÷ its dense peak ÷ step time."""


def best_constant_hfu(
    hfus: Iterable[float], weights: Iterable[float] | None = None
) -> float | None:
    """Return the constant HFU with the least (weighted) MAPE over runs of these HFUs; None if none.

    A run of HFU h is predicted c·h times its measured time by the constant 1/c, so the MAPE is
    Σ w·|c·h − 1| = Σ w·h·|c − 1/h|: least at the median of 1/h with weights w·h.
    """
    values = list(hfus)
    if not values:
        return None
    shares = list(weights) if weights is not None else [1.0] * len(values)
    ordered = sorted(zip(values, shares, strict=True), reverse=True)
    reached = list(accumulate(value * share for value, share in ordered))
    middle = reached[-1] / 2
    return next(
        value for (value, _), total in zip(ordered, reached, strict=True) if total >= middle
    )


def constant_without(group: str, groups: Mapping[str, Sequence[Utilisation]]) -> float | None:
    """Return the best constant HFU of all other groups, each group weighing the same."""
    others = [runs for name, runs in groups.items() if name != group]
    hfus = [run.hfu for runs in others for run in runs]
    weights = [1 / len(runs) for runs in others for _ in runs]
    return best_constant_hfu(hfus, weights)


def fold_of(configuration: str, folds: int = FOLDS) -> int:
    """Return the fold of a configuration: fixed by its text, the same on every machine."""
    return int.from_bytes(hashlib.sha256(configuration.encode()).digest()[:8], "big") % folds


def null_mape(
    runs: Iterable[Utilisation], constant_for: Callable[[Utilisation], float | None]
) -> float | None:
    """Return the MAPE of predicting each run by its constant HFU; None if none can be."""
    sizes = [
        abs(run.hfu / constant - 1) for run in runs if (constant := constant_for(run)) is not None
    ]
    return fmean(sizes) if sizes else None


def left_out_null_mape(group: str, groups: Mapping[str, Sequence[Utilisation]]) -> float | None:
    """Return the MAPE of one group by the best constant HFU of all others; None without others."""
    constant = constant_without(group, groups)
    return null_mape(groups[group], lambda _: constant)


def folded_null_mape(group: str, groups: Mapping[str, Sequence[Utilisation]]) -> float | None:
    """Return the MAPE of one group by the best constants of its own other folds.

    Where a fold is all the group has, the other groups teach its constant.
    """
    constants = {
        fold: best_constant_hfu(
            run.hfu for run in groups[group] if fold_of(run.configuration) != fold
        )
        for fold in range(FOLDS)
    }
    left_out = constant_without(group, groups)
    return null_mape(groups[group], lambda run: constants[fold_of(run.configuration)] or left_out)
