"""What else the machines of a candidate may run where the exact check finds its memory short.

A candidate is the best of its kind by what the search assumes of the allocator. Where a replay says
otherwise, what it stood for is looked at again, the fastest first: other layouts of the same ranks,
recompute policies and micro-batches. To halve the micro-batch and keep all else is not enough: 16
samples with recompute are then followed by 8 with it, though 8 fit without.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ...plan.setup import Setup
from ...predict.kept.model_cache import ModelCache
from ...predict.step_time import step_parts
from ...software.kept_memory import compiles_whole
from ...software.stack import casts_layers
from ..candidate import Candidate
from ..frozen_ways import keeps_frozen
from ..search_space import Space, few_micro_batches
from ..whole_work import WholeWork
from .data_parallel import DataParallelPredictor
from .some_layers import ends_of, equal_layers, further_share
from .tried_layouts import TriedLayouts, tried_layouts


@dataclass(frozen=True, kw_only=True)
class NextBest:
    """Finds what else fits on the machines of a candidate, as far as the search knows."""

    cache: ModelCache
    space: Space
    whole: WholeWork
    max_oom: float
    """Chance of running out of memory that is accepted."""
    all_variants: bool
    """Whether every layout is a candidate of its own, so that none stands for another."""

    def of(self, candidate: Candidate) -> list[Candidate]:
        """Return what else may run instead of a candidate, the fastest first."""
        if candidate.layout.is_data_parallel_only:
            found = self._data_parallel(candidate)
        else:
            found = self._split(candidate)
        own = _variant(candidate)
        return [one for one in sorted(found, key=_seconds_per_sample) if _variant(one) != own]

    def _runs_alike(self, one: Setup, other: Setup) -> bool:
        """Return whether a compiler sees as much of the model's own loss under two layouts."""
        stays_out = not self.cache.profile.loss_in_model
        return stays_out or compiles_whole(one) == compiles_whole(other)

    def _data_parallel(self, candidate: Candidate) -> list[Candidate]:
        """Return all variants of the layouts that a candidate is the best of."""
        base, site = candidate.base, candidate.one_node
        cast = casts_layers(base.stack, candidate.layout, base.offload)
        layouts = {candidate.layout: None}
        if not self.all_variants and "parameters" not in base.offload:
            same = self.space.layouts_for(candidate.nodes, site.per_node)
            layouts |= dict.fromkeys(
                one
                for one in same
                if one.is_data_parallel_only
                and casts_layers(base.stack, one, base.offload) == cast
                and self._runs_alike(replace(candidate.setup, layout=one), candidate.setup)
                and (base.frozen_precision is None or keeps_frozen(one, site.accelerator, base))
            )
        rows = tuple(layouts)
        predictor = DataParallelPredictor(cache=self.cache, space=self.space)
        tried = tried_layouts(predictor, site, rows, base, max_oom=self.max_oom)
        kept = tried.fits if candidate.is_risky else tried.is_safe
        found: list[Candidate] = []
        for row, column in np.argwhere(kept).tolist():
            one = replace(
                candidate,
                layout=rows[row],
                micro_batch=int(tried.micro_batch[column]),
                grad_accum=int(tried.accum[row, column]),
                recompute=tried.recompute[column],
                recompute_share=float(tried.share[row, column]),
                step_s=float(tried.step_s[row, column]),
            )
            found += self._with_more_layers(self._whole(one), _full_s(tried, row, column))
        return found

    def _split(self, candidate: Candidate) -> list[Candidate]:
        """Return the same layout with other recompute policies, and with smaller micro-batches."""
        found: list[Candidate] = []
        for size in few_micro_batches(self.space.micro_batches):
            accum = self._accumulation(candidate, size)
            if size > candidate.micro_batch or accum is None:
                continue
            policies = {
                policy: self._timed(candidate, size, accum, policy)
                for policy in self.space.recomputes
            }
            found += policies.values()
            if ends_of(self.space.recomputes, self.cache.profile) is None:
                continue
            kept, again = policies["none"], policies["full"]
            share = candidate.recompute_share if candidate.recompute == "full" else 0.0
            part = 0.0 if share == 1.0 else share
            some = replace(
                again,
                recompute_share=part,
                step_s=kept.step_s + part * (again.step_s - kept.step_s),
            )
            found += self._with_more_layers(some, again.step_s)[0 if part else 1 :]
        return found

    def _timed(self, candidate: Candidate, size: int, accum: int, policy: str) -> Candidate:
        one = replace(
            candidate,
            micro_batch=size,
            grad_accum=accum,
            recompute=policy,
            recompute_share=candidate.base.recompute_share,
        )
        setup: Setup = one.setup
        step_s = step_parts(self.cache, candidate.site, setup).total_s.item()
        return self._whole(replace(one, step_s=step_s))

    def _with_more_layers(self, one: Candidate, full_s: float | None) -> list[Candidate]:
        """Return a candidate, and itself with more layers recomputed where only some are.

        Between some layers and all of them lies the time on a straight line.
        """
        found = [one]
        layers = equal_layers(self.cache.profile) // one.layout.pipeline
        if one.recompute_share == 1.0 or full_s is None or layers < 1:
            return found
        share, left = one.recompute_share, 1.0 - one.recompute_share
        while (share := further_share(share, layers)) < 1.0:
            part = (share - one.recompute_share) / left
            step_s = one.step_s + part * (full_s - one.step_s)
            found.append(replace(one, recompute_share=share, step_s=step_s))
        return found

    def _whole(self, one: Candidate) -> Candidate:
        batch = one.micro_batch * one.grad_accum * one.layout.data
        return replace(one, global_batch=batch, steps=self.whole.steps(batch))

    def _accumulation(self, candidate: Candidate, size: int) -> int | None:
        """Return the micro-batches of a step; None where they do not make the global batch."""
        if self.space.grad_accums or self.space.global_batch is None:
            fixed = self.space.global_batch is not None and size != candidate.micro_batch
            return None if fixed else candidate.grad_accum
        at_once = size * candidate.layout.data
        accum, left = divmod(self.space.global_batch, at_once)
        return None if left or not accum else accum


def _full_s(tried: TriedLayouts, row: int, column: int) -> float | None:
    """Return the step where all layers are recomputed, of a column that recomputes some."""
    if tried.share[row, column] == 1.0:
        return None
    size = tried.micro_batch[column]
    for other, policy in enumerate(tried.recompute):
        whole = policy == "full" and tried.share[row, other] == 1.0
        if whole and tried.micro_batch[other] == size and other != column:
            return float(tried.step_s[row, other])
    return None


def _variant(one: Candidate) -> tuple[object, ...]:
    return one.layout, one.recompute, one.micro_batch, one.recompute_share


def _seconds_per_sample(one: Candidate) -> float:
    return one.step_s / one.global_batch


@dataclass
class TooLarge:
    """Variants that the exact check found short of memory, and what needs as much as they do."""

    _short: list[Candidate]

    @classmethod
    def of(cls, found: Iterable[Candidate]) -> TooLarge:
        """Return what is known from these."""
        return cls(list(found))

    def add(self, one: Candidate) -> None:
        """Keep one more."""
        self._short.append(one)

    def holds(self, one: Candidate) -> bool:
        """Return whether a variant needs no less than one of these.

        Memory grows with the micro-batch, and with the layers that keep their activations.
        """
        return any(
            one.layout == other.layout
            and one.recompute == other.recompute
            and one.micro_batch >= other.micro_batch
            and one.recompute_share <= other.recompute_share
            for other in self._short
        )
