"""What an odd width of the model, an odd vocabulary most often, costs on the plans of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from ....catalog.text.quantity import format_part
from ...hardware.cluster import Site
from ...plan.setup import Setup
from ...predict.kept.model_cache import ModelCache
from ...predict.setup import stack_facts
from ...predict.step_time import planned_step_s
from ...software.stack import PADDED_WIDTHS
from ...step.kernels.odd_widths import odd_widths_of, wider_width
from ..candidate import Candidate

LEAST_SHARE = 0.1
"""Of the step, from which it is worth a line. A judgement."""
MOST_PLANS, MOST_OTHERS = 16, 4
"""Candidates that are looked at, shown and not: a few milliseconds each. A judgement."""


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
    yield (
        f"products {width:,} wide, an odd number, are slow in 16 bits without a compiler: up to"
        f" {format_part(share)} of a step (on {device}). A width of {wider_width(width):,} in the"
        " file, as of a vocabulary padded to it, would save that"
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
    if (
        stack_facts(setup, cache.constants).odd_widths != "kept"
        or not setup.layout.is_data_parallel_only
    ):
        return
    numerics = cache.numerics(setup.precision, autocast=setup.autocast)
    segments = cache.steps.trace_in(numerics, setup.recompute).segments
    widths = odd_widths_of(kernel for segment in segments for kernel in segment.kernels)
    if widths:
        even = replace(setup, features=setup.features | {PADDED_WIDTHS})
        even_s, odd_s = (planned_step_s(cache, site, one) for one in (even, setup))
        yield 1 - even_s / odd_s, max(widths)
