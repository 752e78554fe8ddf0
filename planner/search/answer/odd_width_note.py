"""What an odd width of the model, an odd vocabulary most often, costs on the plans of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from ....catalog.text.quantity import format_part
from ...hardware.cluster import Site
from ...plan.setup import Setup
from ...predict.kept.model_cache import ModelCache
from ...predict.setup import recompute_policies, stack_facts
from ...predict.step_time import planned_step_s
from ...software.stack import StackFacts
from ...step.kernel_times import odd_widths_of
from ...step.kernel_totals import MicroBatchTimes
from ..candidate import Candidate

LEAST_SHARE = 0.1
"""Of the step, from which it is worth a line. A judgement."""
MOST_PLANS, MOST_OTHERS = 16, 4
"""Candidates that are looked at, shown and not: a few milliseconds each. A judgement."""
MULTIPLE = 64
"""Of a width that every kernel takes: rows of 128 bytes in 16 bits."""


def odd_width_note(
    cache: ModelCache, shown: Iterable[Candidate], others: Iterable[Candidate]
) -> Iterator[str]:
    """Yield how much of a step is lost to an odd width at most, and a width that would not lose it.

    Args:
        cache: the model.
        shown: what the plans of the answer were made of; the first of them are looked at.
        others: what else could be rented: the width may be why it is not shown.
    """
    found = [
        (share, one.one_node.accelerator.name, width)
        for one in (*islice(shown, MOST_PLANS), *_strongest(others))
        for share, width in _lost(cache, one.site, one.setup)
    ]
    if not found:
        return
    share, device, width = max(found)
    if share < LEAST_SHARE:
        return
    wider = -(-width // MULTIPLE) * MULTIPLE
    yield (
        f"products {width:,} wide, an odd number, are slow in 16 bits without a compiler: up to"
        f" {format_part(share)} of a step (on {device}). A width of {wider:,} in the file, as of a"
        " vocabulary padded to it, would save that"
    )


def _strongest(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return a candidate on each of the devices that multiply most in 16 bits: they lose most."""
    by_device: dict[str, Candidate] = {}
    for one in candidates:
        by_device.setdefault(one.one_node.accelerator.name, one)
    return sorted(by_device.values(), key=_peak_flops, reverse=True)[:MOST_OTHERS]


def _peak_flops(candidate: Candidate) -> float:
    peaks = candidate.one_node.accelerator.peak_flops
    return max(peaks.get("bf16") or 0.0, peaks.get("fp16") or 0.0)


def _lost(cache: ModelCache, site: Site, setup: Setup) -> Iterator[tuple[float, int]]:
    """Yield the share of a step that is lost and the largest odd width; nothing without one.

    Where the model is split nothing is said: its parts have widths of their own.
    """
    facts = stack_facts(setup, cache.constants)
    if facts.odd_widths != "kept" or not setup.layout.is_data_parallel_only:
        return
    numerics = cache.numerics(setup.precision, autocast=setup.autocast)
    segments = cache.steps.trace_in(numerics, setup.recompute).segments
    widths = odd_widths_of(kernel for segment in segments for kernel in segment.kernels)
    if widths:
        even = replace(facts, odd_widths="none")
        lost_s = _passes_s(cache, site, setup, facts) - _passes_s(cache, site, setup, even)
        yield setup.grad_accum * lost_s / planned_step_s(cache, site, setup), max(widths)


def _passes_s(cache: ModelCache, site: Site, setup: Setup, facts: StackFacts) -> float:
    """Return seconds of both passes over one micro-batch."""
    policies = recompute_policies(setup)
    times = cache.times(
        site.accelerator,
        setup.precision,
        tuple(policies),
        stack=facts,
        micro_batches=np.array([setup.micro_batch]),
    )
    shares = list(policies.values())
    both = MicroBatchTimes.weighted([one.micro_batch() for one in times], shares)
    return float((both.forward_s + both.backward_s)[0])
