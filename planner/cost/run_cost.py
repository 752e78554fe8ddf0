"""From a step time to the whole run: steps, hours, dollars."""

from __future__ import annotations

import math
from decimal import Decimal

from ...catalog.errors import UsageError
from ...catalog.units import SECONDS_PER_HOUR
from ..plan.plan import CostLine, Estimated, RunCost
from ..plan.question import Work

CENT = Decimal("0.01")
UNIT = "instance-hour"
"""What time of machines is counted in."""


def samples_of(work: Work, tokens_per_sample: float | None, global_batch: int) -> float | None:
    """Return how many samples the work is, or None when no amount was given.

    Raises:
        UsageError: tokens are given but the file does not say how many a sample has, or epochs
            without the size of the data set.
    """
    if work.steps is not None:
        return work.steps * global_batch
    samples = given_samples(work, tokens_per_sample)
    if samples is not None and work.critical_batch is not None:
        # E = E_min (1 + B / B_crit), and so S = S_min (1 + B_crit / B).
        samples *= 1 + global_batch / work.critical_batch
    return samples


def given_samples(work: Work, tokens_per_sample: float | None) -> float | None:
    """Return the samples of an amount of work; None for steps, or where none was given.

    Raises:
        UsageError: as `samples_of`.
    """
    if work.samples is not None:
        return work.samples
    if work.epochs is not None:
        if work.dataset_size is None:
            raise UsageError(
                "--epochs needs the number of samples of the data set.", fix="add --dataset-size."
            )
        return work.epochs * work.dataset_size
    if work.tokens is not None:
        if tokens_per_sample is None:
            raise UsageError(
                "--tokens was given, but the model file does not say how many tokens a sample has.",
                fix="set TOKENS_PER_SAMPLE in the file, or give --samples.",
            )
        return work.tokens / tokens_per_sample
    return None


def steps_of(samples: float, global_batch: int) -> int:
    """Return how many optimizer steps samples take, one at least.

    Whole samples are divided as integers: a quotient of floats is rounded, and may hide the step
    of the last few samples, or add one.

    >>> steps_of(2**53 + 2, 2), steps_of(0.5, 64)
    (4503599627370497, 1)
    """
    if float(samples).is_integer():
        return max(1, -(-int(samples) // global_batch))
    return max(1, math.ceil(samples / global_batch))


def run_cost(
    step: Estimated,
    *,
    samples: float,
    global_batch: int,
    nodes: int,
    usd_per_hour: Decimal | None,
    spot_usd_per_hour: Decimal | None,
    tokens_per_sample: float | None,
) -> RunCost:
    """Return what training on `samples` samples takes, at one node price.

    Args:
        step: one optimizer step.
        samples: work to do.
        global_batch: samples per step.
        nodes: how many are rented.
        usd_per_hour: one node; None when unknown, and then every dollar field is None.
        spot_usd_per_hour: one node on the spot market, if known.
        tokens_per_sample: for the price of a million tokens.
    """
    steps = steps_of(samples, global_batch)
    hours, low, high = (steps * s / SECONDS_PER_HOUR for s in (step.value, step.low, step.high))

    def dollars(node_usd_per_hour: Decimal | None, run_hours: float) -> float | None:
        if node_usd_per_hour is None:
            return None
        return float(node_usd_per_hour) * nodes * run_hours

    usd = dollars(usd_per_hour, hours)
    per_sample = None if usd is None else usd / samples
    return RunCost(
        steps=steps,
        trained_samples=samples,
        trained_tokens=None if tokens_per_sample is None else samples * tokens_per_sample,
        hours=hours,
        hours_low=low,
        hours_high=high,
        usd=usd,
        usd_low=dollars(usd_per_hour, low),
        usd_high=dollars(usd_per_hour, high),
        spot_usd=dollars(spot_usd_per_hour, hours),
        usd_per_million_samples=None if per_sample is None else per_sample * 1e6,
        usd_per_million_tokens=(
            None
            if per_sample is None or not tokens_per_sample
            else per_sample / tokens_per_sample * 1e6
        ),
        cost_lines=_lines(usd_per_hour, usd, instance_hours=nodes * hours),
    )


def _lines(
    usd_per_hour: Decimal | None, usd: float | None, *, instance_hours: float
) -> tuple[CostLine, ...]:
    if usd_per_hour is None or usd is None:
        return ()
    line = CostLine(
        name="instances",
        quantity=instance_hours,
        unit="instance-hour",
        unit_usd=usd_per_hour,
        usd=Decimal(usd).quantize(CENT),
    )
    return (line,)
